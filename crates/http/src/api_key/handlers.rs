//! The handlers of API keys: create, list, get, rename, rotate, delete.

use actix_web::http::StatusCode;
use casement_domain::{
    api_key::{KeyFilter, KeyOrder, NewKeyRequest},
    field::Fields,
    permission::{PolicyRequest, StatementRequest},
    session::StatusFilter,
};
use serde::Deserialize;

use super::record::{ApiKeyBody, CreatedApiKeyBody};
use crate::{
    answer::{self, Answer},
    date_time,
    error::ApiError,
    query::{DeletedParams, non_empty},
    request::{OrganizationKey, Request},
    schema::{IntoParams, ToSchema},
};

/// A key to create.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CreateApiKey {
    /// A label for people, 1 to 255 characters. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
    /// The lifetime in days, 1 to 3650. Default: the key never expires. Excludes `expires_at`.
    days_to_expire: Option<i64>,
    /// The time at which the key expires: in the future, at most 3650 days from now, and not after the expiry of the
    /// key that makes it. Excludes `days_to_expire`.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// The only project that the key opens. Default: all projects of the organization.
    project_id: Option<String>,
    /// What the key allows. Default: everything in its scope. A key with a policy makes only keys with a policy, each
    /// statement of which one of its own statements covers.
    policy: Option<KeyPolicyInput>,
}

/// What a key allows: whatever no statement allows is refused with 403 `insufficient_scope`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ApiKeyPolicyInput)]
pub(crate) struct KeyPolicyInput {
    /// At most 50.
    #[schema(required, nullable = false)]
    statements: Option<Vec<KeyStatementInput>>,
}

/// An allowed action on a resource.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ApiKeyStatementInput)]
pub(crate) struct KeyStatementInput {
    /// A kind of resource and a verb, `*` for all: `browsers:use`, `profiles:*`, `*:read` or `*`.
    #[schema(required, nullable = false)]
    action: Option<String>,
    /// `*`, `projects/<project>/<kind>/<id>`, `projects/<project>/*`, `projects/<project>`, `organization/<kind>/<id>` or
    /// `organization/*`, with ids (no names), and `*` in place of any id or kind.
    #[schema(required, nullable = false)]
    resource: Option<String>,
}

impl From<KeyPolicyInput> for PolicyRequest {
    fn from(input: KeyPolicyInput) -> Self {
        let statement = |one: KeyStatementInput| StatementRequest { action: one.action, resource: one.resource };
        Self { statements: input.statements.map(|all| all.into_iter().map(statement).collect()) }
    }
}

impl CreateApiKey {
    fn into_request(self) -> Result<NewKeyRequest, ApiError> {
        let Self { name, days_to_expire, expires_at, project_id, policy } = self;
        let mut fields = Fields::new();
        let expires_at = fields.take_optional("expires_at", expires_at, |text| date_time::parse(&text));
        fields.finish()?;
        Ok(NewKeyRequest { name, days_to_expire, expires_at, project_id, policy: policy.map(Into::into) })
    }
}

/// The new name of a key.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct RenameApiKey {
    /// A label for people, 1 to 255 characters. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
}

/// The lifetimes of the new and the old key of a rotation.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct RotateApiKey {
    /// The lifetime of the new key in days, 1 to 3650. Default: the lifetime of the old key.
    days_to_expire: Option<i64>,
    /// The number of days until the old key expires, 0 to 3650. Default: 7.
    expire_in_days: Option<i64>,
}

pub(crate) async fn create_api_key(mut request: Request<OrganizationKey>) -> Answer {
    let input = request.json::<CreateApiKey>().await?.into_request()?;
    let made = request.services().key_administration.create(request.caller(), input).await?;
    let location = format!("/org/api_keys/{}", made.1.key.id);
    Ok(answer::created(&location, &CreatedApiKeyBody::from(made)))
}

/// The filter and the order of a list of keys.
#[derive(Deserialize, IntoParams)]
pub(super) struct KeyListParams {
    /// `active` (default, including expired keys), `deleted` or `all`.
    #[param(value_type = Option<String>)]
    status: Option<KeyStatus>,
    /// Whether deleted keys are listed too, as with `status=all`. Ignored with `status`.
    include_deleted: Option<bool>,
    /// `created_at` (default), `name` or `expires_at`.
    #[param(value_type = Option<String>)]
    sort_by: Option<SortBy>,
    /// `asc` or `desc` (default).
    #[param(value_type = Option<String>)]
    sort_direction: Option<SortDirection>,
    /// The whole name; case and accents are ignored.
    name: Option<String>,
    /// Part of the name, the creator or the project, or the beginning of the id or the key.
    query: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeyStatus {
    Active,
    Deleted,
    All,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum SortBy {
    CreatedAt,
    Name,
    ExpiresAt,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum SortDirection {
    Asc,
    Desc,
}

impl From<KeyListParams> for KeyFilter {
    fn from(params: KeyListParams) -> Self {
        Self {
            status: match params.status {
                None if params.include_deleted == Some(true) => StatusFilter::All,
                None | Some(KeyStatus::Active) => StatusFilter::Active,
                Some(KeyStatus::Deleted) => StatusFilter::Deleted,
                Some(KeyStatus::All) => StatusFilter::All,
            },
            name: non_empty(params.name),
            query: non_empty(params.query),
            order: match params.sort_by {
                None | Some(SortBy::CreatedAt) => KeyOrder::CreatedAt,
                Some(SortBy::Name) => KeyOrder::Name,
                Some(SortBy::ExpiresAt) => KeyOrder::ExpiresAt,
            },
            ascending: matches!(params.sort_direction, Some(SortDirection::Asc)),
        }
    }
}

pub(crate) async fn list_api_keys(request: Request<OrganizationKey>) -> Answer {
    let (filter, page) = (request.query::<KeyListParams>()?.into(), request.page()?);
    let found = request.services().key_administration.list(request.organization(), &filter, page).await?;
    Ok(answer::list(&found.map(ApiKeyBody::from)))
}

pub(crate) async fn get_api_key(request: Request<OrganizationKey>) -> Answer {
    let (id, deleted) = (request.path("id")?, request.query::<DeletedParams>()?.include_deleted.unwrap_or(false));
    let entry = request.services().key_administration.get(request.organization(), &id, deleted).await?;
    Ok(answer::record(StatusCode::OK, &ApiKeyBody::from(entry)))
}

pub(crate) async fn update_api_key(mut request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id")?;
    let RenameApiKey { name } = request.json().await?;
    let entry = request.services().key_administration.rename(request.organization(), &id, name).await?;
    Ok(answer::record(StatusCode::OK, &ApiKeyBody::from(entry)))
}

pub(crate) async fn delete_api_key(request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id")?;
    request.services().key_administration.delete(request.caller(), &id).await?;
    Ok(answer::nothing())
}

pub(crate) async fn rotate_api_key(mut request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id")?;
    let RotateApiKey { days_to_expire, expire_in_days } = request.json().await?;
    let keys = &request.services().key_administration;
    let made = keys.rotate(request.caller(), &id, days_to_expire, expire_in_days).await?;
    let location = format!("/org/api_keys/{}", made.1.key.id);
    Ok(answer::created(&location, &CreatedApiKeyBody::from(made)))
}
