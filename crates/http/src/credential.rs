//! `/credentials`. No response contains their values or secrets.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use casement_domain::{
    credential::{Credential, CredentialFilter, CredentialUpdate, NewCredential, TotpCode},
    field::InvalidInput,
};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer, Moment},
    caller::Authorized,
    error::{ApiError, ErrorBody},
    from_fields::secrets,
    json::nullable,
};

/// The credentials of a login at a site.
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
    /// The names of its values; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_keys: Option<Vec<String>>,
    /// The current one-time code; present only when the secret was just set.
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
    /// The time at which the next code takes its place.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Moment,
}

impl From<TotpCode> for TotpCodeBody {
    fn from(code: TotpCode) -> Self {
        Self { code: code.code.expose_secret().to_owned(), expires_at: Moment(code.expires_at) }
    }
}

/// A credential to create.
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
    /// The SSO provider whose button is pressed first, at a site that has it.
    sso_provider: Option<String>,
    /// Base 32, as sites show it; codes are SHA-1, six digits, 30 s.
    totp_secret: Option<String>,
}

/// The changes of a credential; an absent field stays.
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
    /// Values to add or replace.
    values: Option<BTreeMap<String, String>>,
    /// Values to delete, before the others are added.
    remove_value_keys: Option<Vec<String>>,
}

impl CredentialInput {
    fn parse(self) -> Result<NewCredential, InvalidInput> {
        let Self { name, domain, values, sso_provider, totp_secret } = self;
        let (values, totp_secret) = (secrets(values), totp_secret.map(Into::into));
        NewCredential::parse(name.as_deref(), domain.as_deref(), values, sso_provider.as_deref(), totp_secret)
    }
}

impl CredentialChanges {
    fn parse(self) -> Result<CredentialUpdate, InvalidInput> {
        let Self { name, sso_provider, totp_secret, values, remove_value_keys } = self;
        let (values, totp_secret) = (secrets(values), totp_secret.map(Into::into));
        CredentialUpdate::parse(name.as_deref(), sso_provider, totp_secret, values, remove_value_keys)
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
    let body = caller.json::<CredentialInput>().await?;
    caller.scope().writable()?;
    let new = body.parse()?;
    let kept = caller.finish(|services, scope| async move { services.credentials.create(&scope, new).await });
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
    let body = caller.json::<CredentialChanges>().await?;
    caller.scope().writable()?;
    let update = body.parse()?;
    let changed =
        caller.finish(|services, scope| async move { services.credentials.update(&scope, &which, update).await });
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
