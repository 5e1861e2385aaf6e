//! `/credentials`. Their values and secrets come in and never go out.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use casement_domain::credential::{CreateCredential, Credential, CredentialFilter, TotpCode, UpdateCredential};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer, Moment},
    caller::Authorized,
    error::{ApiError, ErrorBody},
    json::nullable,
};

/// What is known of a login at a site.
#[derive(Serialize, ToSchema)]
#[schema(as = Credential)]
pub(crate) struct CredentialBody {
    id: String,
    name: String,
    /// The host name of the site.
    domain: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Moment,
    has_values: bool,
    has_totp_secret: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sso_provider: Option<String>,
    /// What its values are called; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_keys: Option<Vec<String>>,
    /// The code that holds now; only when the secret was just set.
    #[serde(skip_serializing_if = "Option::is_none")]
    totp_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    totp_code_expires_at: Option<Moment>,
}

impl CredentialBody {
    fn listed(credential: Credential) -> Self {
        Self {
            id: credential.id.to_string(),
            name: credential.name.as_str().to_owned(),
            domain: credential.domain,
            created_at: Moment(credential.created_at),
            updated_at: Moment(credential.updated_at),
            has_values: !credential.value_keys.is_empty(),
            has_totp_secret: credential.has_totp_secret,
            sso_provider: credential.sso_provider,
            value_keys: None,
            totp_code: None,
            totp_code_expires_at: None,
        }
    }

    fn alone(mut credential: Credential, code: Option<TotpCode>) -> Self {
        let value_keys = std::mem::take(&mut credential.value_keys);
        Self {
            has_values: !value_keys.is_empty(),
            value_keys: Some(value_keys),
            totp_code: code.as_ref().map(|code| code.code.expose_secret().to_owned()),
            totp_code_expires_at: code.map(|code| Moment(code.expires_at)),
            ..Self::listed(credential)
        }
    }
}

/// A one-time code.
#[derive(Serialize, ToSchema)]
pub(crate) struct TotpCodeBody {
    /// Six digits.
    code: String,
    /// From then on the next one holds.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Moment,
}

impl From<TotpCode> for TotpCodeBody {
    fn from(code: TotpCode) -> Self {
        Self { code: code.code.expose_secret().to_owned(), expires_at: Moment(code.expires_at) }
    }
}

/// A credential to keep.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = CreateCredential)]
pub(crate) struct CredentialInput {
    /// 1 to 255 characters, unique in the project. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
    /// A host name. Required.
    #[schema(required, nullable = false)]
    domain: Option<String>,
    /// At most 50, of at most 8 KiB each; by names of at most 128 characters. Required.
    #[schema(required, nullable = false)]
    values: Option<BTreeMap<String, String>>,
    /// Whose button is to be pressed first, at a site that has it.
    sso_provider: Option<String>,
    /// Base 32, as sites show it; codes are SHA-1, six digits, 30 s.
    totp_secret: Option<String>,
}

/// What to change of a credential; what is absent stays as it is.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = UpdateCredential)]
pub(crate) struct CredentialChanges {
    /// 1 to 255 characters, unique in the project.
    name: Option<String>,
    /// `""` or null clears.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    sso_provider: Option<Option<String>>,
    /// `""` clears.
    totp_secret: Option<String>,
    /// To put in, over those of the same name.
    values: Option<BTreeMap<String, String>>,
    /// Values to forget, before the others are put in.
    remove_value_keys: Option<Vec<String>>,
}

fn secret(values: BTreeMap<String, String>) -> BTreeMap<String, secrecy::SecretString> {
    values.into_iter().map(|(name, value)| (name, value.into())).collect()
}

impl From<CredentialInput> for CreateCredential {
    fn from(input: CredentialInput) -> Self {
        Self {
            name: input.name,
            domain: input.domain,
            values: input.values.map(secret),
            sso_provider: input.sso_provider,
            totp_secret: input.totp_secret.map(Into::into),
        }
    }
}

impl From<CredentialChanges> for UpdateCredential {
    fn from(changes: CredentialChanges) -> Self {
        Self {
            name: changes.name,
            sso_provider: changes.sso_provider,
            totp_secret: changes.totp_secret.map(Into::into),
            values: changes.values.map(secret),
            remove_value_keys: changes.remove_value_keys,
        }
    }
}

/// Keeps a credential. Its values are sealed, and never shown again.
#[utoipa::path(
    post, path = "/credentials", tag = "Credentials", request_body = CredentialInput,
    responses(
        (status = 201, body = CredentialBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 409, description = "Another credential bears the name", body = ErrorBody),
        (status = 429, description = "The project has as many as it may have", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn create_credential(mut caller: Authorized) -> Answer {
    let wish = caller.json::<CredentialInput>().await?.into();
    let kept = caller.finish(|services, scope| async move { services.credentials.create(&scope, wish).await });
    let (credential, code) = kept.await?;
    let body = CredentialBody::alone(credential, code);
    Ok(answer::created(&format!("/credentials/{}", body.id), &body))
}

/// Lists credentials, newest first.
#[utoipa::path(
    get, path = "/credentials", tag = "Credentials",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("domain" = Option<String>, Query, description = "The whole domain"),
        ("query" = Option<String>, Query, description = "Part of name or domain, or a whole id"),
    ),
    responses(
        (status = 200, body = [CredentialBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_credentials(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let given = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let filter = CredentialFilter { domain: given("domain")?, query: given("query")? };
    let page = caller.services().credentials.list(caller.scope(), &filter, query.page()?).await?;
    Ok(answer::list(&page.map(CredentialBody::listed)))
}

/// Reads one credential, without its values.
#[utoipa::path(
    get, path = "/credentials/{id_or_name}", tag = "Credentials", params(("id_or_name" = String, Path)),
    responses(
        (status = 200, body = CredentialBody),
        (status = 404, description = "There is no such credential", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_credential(caller: Authorized) -> Answer {
    let credential = caller.services().credentials.get(caller.scope(), &caller.path("id_or_name")?).await?;
    Ok(answer::record(StatusCode::OK, &CredentialBody::alone(credential, None)))
}

/// Changes a credential.
#[utoipa::path(
    patch, path = "/credentials/{id_or_name}", tag = "Credentials", params(("id_or_name" = String, Path)),
    request_body = CredentialChanges,
    responses(
        (status = 200, body = CredentialBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 404, description = "There is no such credential", body = ErrorBody),
        (status = 409, description = "Another credential bears the name", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn update_credential(mut caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let wish = caller.json::<CredentialChanges>().await?.into();
    let changed =
        caller.finish(|services, scope| async move { services.credentials.update(&scope, &which, wish).await });
    let (credential, code) = changed.await?;
    Ok(answer::record(StatusCode::OK, &CredentialBody::alone(credential, code)))
}

/// Deletes a credential with its values.
#[utoipa::path(
    delete, path = "/credentials/{id_or_name}", tag = "Credentials", params(("id_or_name" = String, Path)),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "There is no such credential", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn delete_credential(caller: Authorized) -> Answer {
    caller.services().credentials.delete(caller.scope(), &caller.path("id_or_name")?).await?;
    Ok(answer::nothing())
}

/// Makes the one-time code that holds now.
#[utoipa::path(
    get, path = "/credentials/{id_or_name}/totp-code", tag = "Credentials", params(("id_or_name" = String, Path)),
    responses(
        (status = 200, body = TotpCodeBody),
        (status = 404, description = "There is no such credential, or it has no TOTP secret", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_totp_code(caller: Authorized) -> Answer {
    let code = caller.services().credentials.totp_code(caller.scope(), &caller.path("id_or_name")?).await?;
    Ok(answer::record(StatusCode::OK, &TotpCodeBody::from(code)))
}
