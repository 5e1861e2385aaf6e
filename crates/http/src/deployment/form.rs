//! Reads the texts of a deployment's form, in all encodings that clients use.

use std::collections::BTreeMap;

use casement_domain::{
    deployment::{AuthRequest, DeploymentRequest, SourceRequest},
    field::{FieldCode, InvalidInput, InvalidValue},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::{
    error::ApiError,
    from_fields::{from_fields, option, secrets},
    json,
    multipart::Form,
};

/// A repository, as JSON text.
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

from_fields!(Source => SourceRequest { kind, url, git_ref, entrypoint, path, auth via option });
from_fields!(Auth => AuthRequest { method, token via option });

/// Reads the texts of the form. `has_file`: whether it has an archive.
///
/// # Errors
/// `bad_request`; `invalid_input`.
pub(super) fn request(form: &Form, has_file: bool) -> Result<DeploymentRequest, ApiError> {
    let text = |name| Ok::<_, ApiError>(form.text(name)?.map(str::to_owned));
    Ok(DeploymentRequest {
        entrypoint_rel_path: text("entrypoint_rel_path")?,
        version: text("version")?,
        region: text("region")?,
        force: force(form)?,
        env_vars: variables(form)?,
        source: source(form)?,
        file: has_file,
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

/// Reads the variables: one JSON text, one text each, or both if they agree.
fn variables(form: &Form) -> Result<Option<BTreeMap<String, SecretString>>, ApiError> {
    let mut all = secrets(form.text("env_vars")?.map(|text| json::text("env_vars", text)).transpose()?);
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

/// Reads the source: one JSON text, or one text for each member.
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
    Ok(Some(found.into()))
}
