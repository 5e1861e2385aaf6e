//! `/credentials`. No response contains their values or secrets.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use casement_domain::{
    credential::{Credential, CredentialFilter, CredentialUpdate, NewCredential, TotpCode, TotpRequest},
    field::InvalidInput,
};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use crate::{
    answer::{self, Answer, Moment},
    from_fields::secrets,
    json::nullable,
    operation::{ARCHIVED, LIMIT_REACHED, NAME_TAKEN, Operations},
    query::non_empty,
    request::{ProjectKey, Request},
    schema::{IntoParams, ToSchema},
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
    /// `SHA1`, `SHA256` or `SHA512`; absent without a TOTP secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    totp_algorithm: Option<&'static str>,
    /// The number of digits of a code; absent without a TOTP secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    totp_digits: Option<u16>,
    /// The number of seconds for which a code is valid; absent without a TOTP secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    totp_period: Option<u16>,
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
            has_totp_secret: credential.totp.is_some(),
            totp_algorithm: credential.totp.map(|totp| totp.algorithm.as_str()),
            totp_digits: credential.totp.map(|totp| totp.digits),
            totp_period: credential.totp.map(|totp| totp.period_seconds),
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
    /// Six to eight digits.
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
    /// 16 to 128 characters of base 32, as sites show it, or a URI `otpauth://totp/…`, whose parameters precede the
    /// following fields.
    totp_secret: Option<String>,
    /// `SHA1`, `SHA256` or `SHA512`. Default: `SHA1`.
    totp_algorithm: Option<String>,
    /// The number of digits of a code, 6 to 8. Default: 6.
    totp_digits: Option<i64>,
    /// The number of seconds for which a code is valid, 1 to 300. Default: 30.
    totp_period: Option<i64>,
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
    /// 16 to 128 characters of base 32, which keep the present parameters that are not given beside them; or a URI
    /// `otpauth://totp/…`, whose absent parameters have their defaults. `""` clears.
    totp_secret: Option<String>,
    /// `SHA1`, `SHA256` or `SHA512`. With `totp_secret` only.
    totp_algorithm: Option<String>,
    /// The number of digits of a code, 6 to 8. With `totp_secret` only.
    totp_digits: Option<i64>,
    /// The number of seconds for which a code is valid, 1 to 300. With `totp_secret` only.
    totp_period: Option<i64>,
    /// Values to add or replace.
    values: Option<BTreeMap<String, String>>,
    /// Values to delete, before the others are added.
    remove_value_keys: Option<Vec<String>>,
}

impl CredentialInput {
    fn parse(self) -> Result<NewCredential, InvalidInput> {
        let Self { name, domain, values, sso_provider, totp_secret, totp_algorithm, totp_digits, totp_period } = self;
        let totp = totp(totp_secret, totp_algorithm, totp_digits, totp_period);
        NewCredential::parse(name.as_deref(), domain.as_deref(), secrets(values), sso_provider.as_deref(), totp)
    }
}

impl CredentialChanges {
    fn parse(self) -> Result<CredentialUpdate, InvalidInput> {
        let Self {
            name,
            sso_provider,
            totp_secret,
            totp_algorithm,
            totp_digits,
            totp_period,
            values,
            remove_value_keys,
        } = self;
        let totp = totp(totp_secret, totp_algorithm, totp_digits, totp_period);
        CredentialUpdate::parse(name.as_deref(), sso_provider, totp, secrets(values), remove_value_keys)
    }
}

fn totp(secret: Option<String>, algorithm: Option<String>, digits: Option<i64>, period: Option<i64>) -> TotpRequest {
    TotpRequest { secret: secret.map(Into::into), algorithm, digits, period }
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Credentials", "The credential does not exist");
    api.post("/credentials", "create_credential", create_credential)
        .summary("Stores a credential. Its values are sealed and never returned.")
        .body::<CredentialInput>()
        .created::<CredentialBody>()
        .refuses([ARCHIVED, NAME_TAKEN, LIMIT_REACHED]);
    api.get("/credentials", "list_credentials", list_credentials)
        .summary("Lists credentials, newest first.")
        .query::<CredentialListParams>()
        .returns_page::<CredentialBody>();
    api.get("/credentials/{id_or_name}", "get_credential", get_credential)
        .summary("Returns a credential without its values.")
        .returns::<CredentialBody>();
    api.patch("/credentials/{id_or_name}", "update_credential", update_credential)
        .summary("Updates a credential.")
        .body::<CredentialChanges>()
        .returns::<CredentialBody>()
        .refuses([ARCHIVED, NAME_TAKEN]);
    api.delete("/credentials/{id_or_name}", "delete_credential", delete_credential)
        .summary("Deletes a credential with its values.")
        .no_content("Deleted");
    api.get("/credentials/{id_or_name}/totp-code", "get_totp_code", get_totp_code)
        .summary("Returns the one-time password that is valid now.")
        .returns::<TotpCodeBody>()
        .refuses([("404", "The credential does not exist, or has no TOTP secret")]);
}

async fn create_credential(mut request: Request<ProjectKey>) -> Answer {
    let body = request.json::<CredentialInput>().await?;
    request.scope().writable()?;
    let new = body.parse()?;
    let stored = request.finish(|services, scope| async move { services.credentials.create(&scope, new).await });
    let (credential, code) = stored.await?;
    let body = CredentialBody::alone(credential, code);
    Ok(answer::created(&format!("/credentials/{}", body.id), &body))
}

/// The filter of a list of credentials.
#[derive(Deserialize, IntoParams)]
pub(crate) struct CredentialListParams {
    /// The whole domain.
    domain: Option<String>,
    /// Part of the name or of the domain, or a whole id.
    query: Option<String>,
}

async fn list_credentials(request: Request<ProjectKey>) -> Answer {
    let CredentialListParams { domain, query } = request.query()?;
    let filter = CredentialFilter { domain: non_empty(domain), query: non_empty(query) };
    let page = request.services().credentials.list(request.scope(), &filter, request.page()?).await?;
    Ok(answer::list(&page.map(CredentialBody::listed)))
}

async fn get_credential(request: Request<ProjectKey>) -> Answer {
    let credential = request.services().credentials.get(request.scope(), &request.path("id_or_name")?).await?;
    Ok(answer::record(StatusCode::OK, &CredentialBody::alone(credential, None)))
}

async fn update_credential(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let body = request.json::<CredentialChanges>().await?;
    request.scope().writable()?;
    let update = body.parse()?;
    let changed =
        request.finish(|services, scope| async move { services.credentials.update(&scope, &which, update).await });
    let (credential, code) = changed.await?;
    Ok(answer::record(StatusCode::OK, &CredentialBody::alone(credential, code)))
}

async fn delete_credential(request: Request<ProjectKey>) -> Answer {
    request.services().credentials.delete(request.scope(), &request.path("id_or_name")?).await?;
    Ok(answer::nothing())
}

async fn get_totp_code(request: Request<ProjectKey>) -> Answer {
    let code = request.services().credentials.totp_code(request.scope(), &request.path("id_or_name")?).await?;
    Ok(answer::record(StatusCode::OK, &TotpCodeBody::from(code)))
}
