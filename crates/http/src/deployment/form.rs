//! The form that brings a program: its texts, in all the ways in which clients write them.

use std::collections::BTreeMap;

use casement_domain::{
    deployment::{AuthRequest, CreateDeployment, SourceRequest},
    field::{FieldCode, InvalidInput, InvalidValue},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::{error::ApiError, json, multipart::Form};

/// A repository, as a text of JSON says it.
#[derive(Default, Deserialize)]
struct Source {
    #[serde(rename = "type")]
    kind: Option<String>,
    url: Option<String>,
    #[serde(rename = "ref")]
    git_ref: Option<String>,
    entrypoint: Option<String>,
    path: Option<String>,
    auth: Option<Auth>,
}

#[derive(Default, Deserialize)]
struct Auth {
    method: Option<String>,
    token: Option<String>,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Variables(BTreeMap<String, String>);

/// What the texts of the form ask for.
///
/// # Errors
/// `bad_request`; `invalid_input`.
pub(super) fn wish(form: &Form) -> Result<CreateDeployment, ApiError> {
    let text = |name| Ok::<_, ApiError>(form.text(name)?.map(str::to_owned));
    Ok(CreateDeployment {
        entrypoint_rel_path: text("entrypoint_rel_path")?,
        version: text("version")?,
        region: text("region")?,
        force: force(form)?,
        env_vars: variables(form)?,
        source: source(form)?,
        file: form.has_file(),
    })
}

fn refused(field: &str, code: FieldCode, message: &str) -> ApiError {
    InvalidInput::of(field, InvalidValue::new(code, message)).into()
}

fn force(form: &Form) -> Result<Option<bool>, ApiError> {
    Ok(match form.text("force")? {
        None => None,
        Some("true" | "1") => Some(true),
        Some("false" | "0") => Some(false),
        Some(_) => return Err(refused("force", FieldCode::InvalidType, "must be true or false")),
    })
}

/// One text of JSON, a text each, or both as long as they agree.
fn variables(form: &Form) -> Result<Option<BTreeMap<String, SecretString>>, ApiError> {
    let whole = form.text("env_vars")?.map(|text| json::text::<Variables>("env_vars", text)).transpose()?;
    let mut all: Option<BTreeMap<String, SecretString>> =
        whole.map(|Variables(map)| map.into_iter().map(|(name, value)| (name, value.into())).collect());
    for name in form.names_in("env_vars") {
        let Some(value) = form.text(&format!("env_vars[{name}]"))? else { continue };
        let known = all.get_or_insert_default();
        match known.get(name) {
            Some(before) if before.expose_secret() != value => {
                let message = "holds a variable that env_vars[…] gives another value";
                return Err(refused("env_vars", FieldCode::MutuallyExclusive, message));
            }
            _ => drop(known.insert(name.to_owned(), value.to_owned().into())),
        }
    }
    Ok(all)
}

/// One text of JSON, or a text each.
fn source(form: &Form) -> Result<Option<SourceRequest>, ApiError> {
    let whole = form.text("source")?.map(|text| json::text::<Source>("source", text)).transpose()?;
    let member = |name: &str| Ok::<_, ApiError>(form.text(&format!("source[{name}]"))?.map(str::to_owned));
    let auth = |name: &str| Ok::<_, ApiError>(form.text(&format!("source[auth][{name}]"))?.map(str::to_owned));
    let parts = Source {
        kind: member("type")?,
        url: member("url")?,
        git_ref: member("ref")?,
        entrypoint: member("entrypoint")?,
        path: member("path")?,
        auth: match (auth("method")?, auth("token")?) {
            (None, None) => None,
            (method, token) => Some(Auth { method, token }),
        },
    };
    let in_parts = form.names_in("source").next().is_some();
    let found = match (whole, in_parts) {
        (Some(_), true) => {
            let message = "may be one text or several, not both";
            return Err(refused("source", FieldCode::MutuallyExclusive, message));
        }
        (Some(whole), false) => whole,
        (None, true) => parts,
        (None, false) => return Ok(None),
    };
    let auth = found.auth.map(|auth| AuthRequest { method: auth.method, token: auth.token.map(Into::into) });
    Ok(Some(SourceRequest {
        kind: found.kind,
        url: found.url,
        git_ref: found.git_ref,
        entrypoint: found.entrypoint,
        path: found.path,
        auth,
    }))
}
