//! Create, list, get, rename, rotate, delete.

use actix_web::http::StatusCode;
use casement_domain::{
    api_key::{KeyFilter, KeyOrder},
    field::FieldCode,
    session::StatusFilter,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::record::{ApiKeyBody, CreatedApiKeyBody};
use crate::{
    answer::{self, Answer},
    caller::OrganizationCaller,
    error::{ApiError, ErrorBody},
    query::Query,
};

/// A key to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CreateApiKey {
    /// What it is for, 1 to 255 characters. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
    /// When it expires, 1 to 3650. Default: never.
    days_to_expire: Option<i64>,
    /// Which project alone it opens. Default: all.
    project_id: Option<String>,
}

/// What to change of a key.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct RenameApiKey {
    /// What it is for. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
}

/// How a key is replaced.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct RotateApiKey {
    /// When the new one expires, 1 to 3650. Default: it lives as long as the old one did.
    days_to_expire: Option<i64>,
    /// When the old one expires, 0 to 3650. Default: 7.
    expire_in_days: Option<i64>,
}

/// Makes a key. Its text is answered this once.
#[utoipa::path(
    post, path = "/org/api_keys", tag = "API keys", request_body = CreateApiKey,
    responses(
        (status = 201, body = CreatedApiKeyBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
    )
)]
pub(crate) async fn create_api_key(mut caller: OrganizationCaller) -> Answer {
    let CreateApiKey { name, days_to_expire, project_id } = caller.json().await?;
    let keys = &caller.services().key_administration;
    let made = keys.create(caller.caller(), name, days_to_expire, project_id.as_deref()).await?;
    let location = format!("/org/api_keys/{}", made.1.key.id);
    Ok(answer::created(&location, &CreatedApiKeyBody::from(made)))
}

/// Lists keys, masked.
#[utoipa::path(
    get, path = "/org/api_keys", tag = "API keys",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("status" = Option<String>, Query, description = "active (default, expired ones too), deleted or all"),
        ("include_deleted" = Option<bool>, Query, description = "Means status=all"),
        ("sort_by" = Option<String>, Query, description = "created_at (default), name or expires_at"),
        ("sort_direction" = Option<String>, Query, description = "asc or desc (default)"),
        ("name" = Option<String>, Query, description = "Exactly this name, whatever the case and the accents"),
        ("query" = Option<String>, Query, description = "Part of name, maker or project, or the beginning of id or key"),
    ),
    responses(
        (status = 200, body = [ApiKeyBody], headers(("X-Has-More" = String), ("X-Next-Offset" = u64))),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
    )
)]
pub(crate) async fn list_api_keys(caller: OrganizationCaller) -> Answer {
    let query = caller.query()?;
    let (filter, page) = (filter(&query)?, query.page()?);
    let found = caller.services().key_administration.list(caller.organization(), &filter, page).await?;
    Ok(answer::list(&found.map(ApiKeyBody::from)))
}

fn filter(query: &Query) -> Result<KeyFilter, ApiError> {
    let refused = |name, message| Err(ApiError::field(name, FieldCode::NotAllowed, message));
    let status = match query.raw("status")? {
        None if query.boolean("include_deleted")? == Some(true) => StatusFilter::All,
        None | Some("active") => StatusFilter::Active,
        Some("deleted") => StatusFilter::Deleted,
        Some("all") => StatusFilter::All,
        Some(_) => return refused("status", "must be active, deleted or all"),
    };
    let order = match query.raw("sort_by")? {
        None | Some("created_at") => KeyOrder::CreatedAt,
        Some("name") => KeyOrder::Name,
        Some("expires_at") => KeyOrder::ExpiresAt,
        Some(_) => return refused("sort_by", "must be created_at, name or expires_at"),
    };
    let ascending = match query.raw("sort_direction")? {
        Some("asc") => true,
        None | Some("desc") => false,
        Some(_) => return refused("sort_direction", "must be asc or desc"),
    };
    let text = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    Ok(KeyFilter { status, name: text("name")?, query: text("query")?, order, ascending })
}

/// One key, masked.
#[utoipa::path(
    get, path = "/org/api_keys/{id}", tag = "API keys",
    params(("id" = String, Path), ("include_deleted" = Option<bool>, Query, description = "Default: false")),
    responses(
        (status = 200, body = ApiKeyBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such key", body = ErrorBody),
    )
)]
pub(crate) async fn get_api_key(caller: OrganizationCaller) -> Answer {
    let (id, deleted) = (caller.path("id")?, caller.query()?.boolean("include_deleted")?.unwrap_or(false));
    let entry = caller.services().key_administration.get(caller.organization(), &id, deleted).await?;
    Ok(answer::record(StatusCode::OK, &ApiKeyBody::from(entry)))
}

/// Renames a key.
#[utoipa::path(
    patch, path = "/org/api_keys/{id}", tag = "API keys", params(("id" = String, Path)), request_body = RenameApiKey,
    responses(
        (status = 200, body = ApiKeyBody),
        (status = 400, description = "The name breaks a rule", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such key", body = ErrorBody),
    )
)]
pub(crate) async fn update_api_key(mut caller: OrganizationCaller) -> Answer {
    let id = caller.path("id")?;
    let RenameApiKey { name } = caller.json().await?;
    let entry = caller.services().key_administration.rename(caller.organization(), &id, name).await?;
    Ok(answer::record(StatusCode::OK, &ApiKeyBody::from(entry)))
}

/// Revokes a key: from now on it is refused everywhere.
#[utoipa::path(
    delete, path = "/org/api_keys/{id}", tag = "API keys", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It is revoked"),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such key", body = ErrorBody),
        (status = 409, description = "It is the key that calls", body = ErrorBody),
    )
)]
pub(crate) async fn delete_api_key(caller: OrganizationCaller) -> Answer {
    let id = caller.path("id")?;
    caller.services().key_administration.delete(caller.caller(), &id).await?;
    Ok(answer::nothing())
}

/// Makes a key that opens the same; the old one goes on for a while.
#[utoipa::path(
    post, path = "/org/api_keys/{id}/rotate", tag = "API keys", params(("id" = String, Path)),
    request_body = RotateApiKey,
    responses(
        (status = 201, description = "The new key", body = CreatedApiKeyBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such key", body = ErrorBody),
    )
)]
pub(crate) async fn rotate_api_key(mut caller: OrganizationCaller) -> Answer {
    let id = caller.path("id")?;
    let RotateApiKey { days_to_expire, expire_in_days } = caller.json().await?;
    let keys = &caller.services().key_administration;
    let made = keys.rotate(caller.caller(), &id, days_to_expire, expire_in_days).await?;
    let location = format!("/org/api_keys/{}", made.1.key.id);
    Ok(answer::created(&location, &CreatedApiKeyBody::from(made)))
}
