//! The handlers of API keys: create, list, get, rename, rotate, delete.

use actix_web::http::StatusCode;
use casement_domain::{
    api_key::{KeyFilter, KeyOrder},
    session::StatusFilter,
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::record::{ApiKeyBody, CreatedApiKeyBody};
use crate::{
    answer::{self, Answer},
    query::{DeletedParams, non_empty},
    request::{OrganizationKey, Request},
};

/// A key to create.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CreateApiKey {
    /// A label for people, 1 to 255 characters. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
    /// The lifetime in days, 1 to 3650. Default: the key never expires.
    days_to_expire: Option<i64>,
    /// The only project that the key opens. Default: all projects of the organization.
    project_id: Option<String>,
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
    let CreateApiKey { name, days_to_expire, project_id } = request.json().await?;
    let keys = &request.services().key_administration;
    let made = keys.create(request.caller(), name, days_to_expire, project_id.as_deref()).await?;
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
