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

use crate::{
    answer::{self, Answer, Moment},
    error::ApiError,
    operation::{ARCHIVED, LIMIT_REACHED, NAME_TAKEN, OTHER_PROJECT, Operations},
    query::non_empty,
    request::{ProjectKey, Request},
    schema::{IntoParams, ToSchema},
    unzstd::decompressed,
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

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Profiles", "The profile does not exist");
    api.post("/profiles", "create_profile", create_profile)
        .summary("Creates a profile. It is empty until a session saves its changes.")
        .body::<ProfileInput>()
        .created::<ProfileBody>()
        .refuses([ARCHIVED, NAME_TAKEN, LIMIT_REACHED]);
    api.get("/profiles", "list_profiles", list_profiles)
        .summary("Lists profiles, newest first.")
        .query::<ProfileListParams>()
        .returns_page::<ProfileBody>()
        .refuses([OTHER_PROJECT]);
    api.get("/profiles/{id_or_name}", "get_profile", get_profile)
        .summary("Returns a profile.")
        .returns::<ProfileBody>();
    api.patch("/profiles/{id_or_name}", "update_profile", update_profile)
        .summary("Renames a profile.")
        .body_with::<ProfileInput>("name")
        .returns::<ProfileBody>()
        .refuses([ARCHIVED, NAME_TAKEN]);
    api.delete("/profiles/{id_or_name}", "delete_profile", delete_profile)
        .summary("Deletes a profile. Sessions that have loaded it keep it, and save nothing.")
        .no_content("Deleted")
        .refuses([("409", "A browser pool loads the profile")]);
    api.get("/profiles/{id_or_name}/download", "download_profile", download_profile)
        .summary(
            "Downloads the saved state: the browser's user data directory as a `tar`, compressed with `zstd` unless `format` says \
             otherwise. The `tar` is empty if nothing was saved.",
        )
        .query::<DownloadProfileParams>()
        .file("The archive")
        .refuses([("404", "The profile or the version of it does not exist")])
        .fails("The database cannot be reached, or the saved state is damaged");
}

async fn create_profile(mut request: Request<ProjectKey>) -> Answer {
    let ProfileInput { name } = request.json().await?;
    let made = request
        .finish(|services, scope| async move { services.profiles.create(&scope, name.as_deref()).await })
        .await?;
    let body = ProfileBody::from(made);
    Ok(answer::created(&format!("/profiles/{}", body.id), &body))
}

/// The filter of a list of profiles.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ProfileListParams {
    /// The whole name; case and accents are ignored.
    name: Option<String>,
    /// Part of the name or of the id.
    query: Option<String>,
}

async fn list_profiles(request: Request<ProjectKey>) -> Answer {
    let ProfileListParams { name, query } = request.query()?;
    let filter = ProfileFilter { name: non_empty(name), query: non_empty(query) };
    let page = request.services().profiles.list(request.scope(), &filter, request.page()?).await?;
    Ok(answer::list(&page.map(ProfileBody::from)))
}

async fn get_profile(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let profile = request.services().profiles.get(request.scope(), &which).await?;
    Ok(answer::record(StatusCode::OK, &ProfileBody::from(profile)))
}

async fn update_profile(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let ProfileInput { name } = request.json().await?;
    let renamed = request
        .finish(|services, scope| async move { services.profiles.rename(&scope, &which, name.as_deref()).await });
    Ok(answer::record(StatusCode::OK, &ProfileBody::from(renamed.await?)))
}

async fn delete_profile(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    request.finish(|services, scope| async move { services.profiles.delete(&scope, &which).await }).await?;
    Ok(answer::nothing())
}

/// The choice of the version that is downloaded.
#[derive(Deserialize, IntoParams)]
pub(crate) struct DownloadProfileParams {
    /// A version that was replaced by a session which had not started from it, as the log names it. Default: the current version.
    version: Option<String>,
    /// `tar.zst`, or `tar` without compression. Default: `tar.zst`.
    format: Option<String>,
}

async fn download_profile(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let DownloadProfileParams { version, format } = request.query()?;
    let is_compressed = match non_empty(format).as_deref() {
        None | Some("tar.zst") => true,
        Some("tar") => false,
        Some(_) => return Err(ApiError::field("format", FieldCode::NotAllowed, "must be tar.zst or tar")),
    };
    let version = non_empty(version).map(|text| {
        let bad = || InvalidValue::new(FieldCode::InvalidFormat, "must be the id of a version");
        text.parse::<ProfileVersionId>().map_err(|_| InvalidInput::of("version", bad()))
    });
    let profiles = &request.services().profiles;
    let (profile, content) = profiles.download(request.scope(), &which, version.transpose()?).await?;
    let name = profile.name.as_ref().map_or_else(|| profile.id.to_string(), ToString::to_string);
    let (content, suffix) = if is_compressed { (content, "tar.zst") } else { (decompressed(content)?, "tar") };
    let content = content.map(|part| part.map_err(|error| actix_web::Error::from(ApiError::internal(error))));
    let disposition = format!("attachment; filename=\"{name}.{suffix}\"");
    Ok(HttpResponse::Ok()
        .content_type(ContentType::octet_stream())
        .insert_header((header::CONTENT_DISPOSITION, disposition))
        .streaming(content))
}
