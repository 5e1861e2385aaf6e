//! `/profiles`.

use actix_web::{
    HttpResponse,
    http::{StatusCode, header, header::ContentType},
};
use casement_domain::{
    ProfileVersionId,
    field::{FieldCode, InvalidInput, InvalidValue},
    profile::{Profile, ProfileFilter},
};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer, Moment},
    caller::Authorized,
    error::{ApiError, ErrorBody},
};

/// The stored state of a browser, which sessions load.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Profile)]
pub(crate) struct ProfileBody {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    /// The time of the last renaming, or of the last saving of a session's changes.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Moment,
    /// The time at which a browser was last started with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Moment>,
}

impl From<Profile> for ProfileBody {
    fn from(profile: Profile) -> Self {
        Self {
            id: profile.id.to_string(),
            name: profile.name.map(|name| name.to_string()),
            created_at: Moment(profile.created_at),
            updated_at: Moment(profile.updated_at),
            last_used_at: profile.last_used_at.map(Moment),
        }
    }
}

/// A profile to create, or its new name.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = ProfileInput)]
pub(crate) struct ProfileInput {
    /// Letters, digits, `.`, `_`, `-`; unique in the project. Required to rename.
    name: Option<String>,
}

/// Makes a profile, which holds nothing until a session saves its changes.
#[utoipa::path(
    post, path = "/profiles", tag = "Profiles", request_body = ProfileInput,
    responses(
        (status = 201, body = ProfileBody),
        (status = 400, description = "The name breaks a rule", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 409, description = "The name is taken", body = ErrorBody),
        (status = 429, description = "The project has as many as it may have", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn create_profile(mut caller: Authorized) -> Answer {
    let ProfileInput { name } = caller.json().await?;
    let made =
        caller.finish(|services, scope| async move { services.profiles.create(&scope, name.as_deref()).await }).await?;
    let body = ProfileBody::from(made);
    Ok(answer::created(&format!("/profiles/{}", body.id), &body))
}

/// Lists profiles, newest first.
#[utoipa::path(
    get, path = "/profiles", tag = "Profiles",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("name" = Option<String>, Query, description = "The whole name, whatever its case and accents"),
        ("query" = Option<String>, Query, description = "Part of the name or of the id"),
    ),
    responses(
        (status = 200, body = [ProfileBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = 403, description = "The key opens another project only", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_profiles(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let given = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let filter = ProfileFilter { name: given("name")?, query: given("query")? };
    let page = caller.services().profiles.list(caller.scope(), &filter, query.page()?).await?;
    Ok(answer::list(&page.map(ProfileBody::from)))
}

/// Reads a profile.
#[utoipa::path(
    get, path = "/profiles/{id_or_name}", tag = "Profiles", params(("id_or_name" = String, Path)),
    responses(
        (status = 200, body = ProfileBody),
        (status = 404, description = "There is no such profile", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_profile(caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let profile = caller.services().profiles.get(caller.scope(), &which).await?;
    Ok(answer::record(StatusCode::OK, &ProfileBody::from(profile)))
}

/// Gives a profile another name.
#[utoipa::path(
    patch, path = "/profiles/{id_or_name}", tag = "Profiles", params(("id_or_name" = String, Path)),
    request_body = ProfileInput,
    responses(
        (status = 200, body = ProfileBody),
        (status = 400, description = "The name breaks a rule", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 404, description = "There is no such profile", body = ErrorBody),
        (status = 409, description = "The name is taken", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn update_profile(mut caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let ProfileInput { name } = caller.json().await?;
    let renamed =
        caller.finish(|services, scope| async move { services.profiles.rename(&scope, &which, name.as_deref()).await });
    Ok(answer::record(StatusCode::OK, &ProfileBody::from(renamed.await?)))
}

/// Deletes a profile. Sessions that have it keep it, and save nothing.
#[utoipa::path(
    delete, path = "/profiles/{id_or_name}", tag = "Profiles", params(("id_or_name" = String, Path)),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "There is no such profile", body = ErrorBody),
        (status = 409, description = "A browser pool loads it", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn delete_profile(caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    caller.finish(|services, scope| async move { services.profiles.delete(&scope, &which).await }).await?;
    Ok(answer::nothing())
}

/// Downloads what was saved: the browser's user data directory as a `tar`, compressed by `zstd`; a `tar` of nothing if nothing was saved.
#[utoipa::path(
    get, path = "/profiles/{id_or_name}/download", tag = "Profiles",
    params(
        ("id_or_name" = String, Path),
        ("version" = Option<String>, Query, description = "A version that was replaced by a session that had not started from it, \
            as the log names it; default: the current one"),
    ),
    responses(
        (status = 200, description = "The archive", content_type = "application/octet-stream"),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such profile, or no such version of it", body = ErrorBody),
        (status = "5XX", description = "The database is away, or what was saved is damaged", body = ErrorBody),
    )
)]
pub(crate) async fn download_profile(caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let query = caller.query()?;
    let version = query.text("version")?.filter(|text| !text.is_empty()).map(|text| {
        let bad = || InvalidValue::new(FieldCode::InvalidFormat, "must be the id of a version");
        text.parse::<ProfileVersionId>().map_err(|_| InvalidInput::of("version", bad()))
    });
    let profiles = &caller.services().profiles;
    let (profile, content) = profiles.download(caller.scope(), &which, version.transpose()?).await?;
    let name = profile.name.as_ref().map_or_else(|| profile.id.to_string(), ToString::to_string);
    let content = content.map(|part| part.map_err(|error| actix_web::Error::from(ApiError::internal(error))));
    let disposition = format!("attachment; filename=\"{name}.tar.zst\"");
    Ok(HttpResponse::Ok()
        .content_type(ContentType::octet_stream())
        .insert_header((header::CONTENT_DISPOSITION, disposition))
        .streaming(content))
}
