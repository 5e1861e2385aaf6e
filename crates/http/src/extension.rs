//! `/extensions`, and loading them into a session that runs.

use actix_web::{
    HttpResponse,
    http::{StatusCode, header, header::ContentType},
};
use casement_domain::{
    extension::{Extension, ExtensionFilter, MAX_EXTENSION_BYTES, MAX_LOADED_AT_ONCE, Upload},
    field::{FieldCode, InvalidInput, InvalidValue},
    session_operation::{ByteStream, OperationError},
};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer, Moment},
    caller::{Authorized, SessionAccess},
    error::{ApiError, ErrorBody},
    multipart::Form,
};

/// The maximum size of a form without its files, in bytes.
const FORM: u64 = 1 << 20;
const FILE: &str = "file";
const NAMES: &str = "extensions[][name]";
const FILES: &str = "extensions[][zip_file]";

/// An extension.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Extension)]
pub(crate) struct ExtensionBody {
    id: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    /// The size of its archive.
    size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The time at which a browser was last started with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Moment>,
    /// SHA-256 of its archive, in hexadecimal.
    checksum: String,
}

impl From<Extension> for ExtensionBody {
    fn from(extension: Extension) -> Self {
        Self {
            id: extension.id.to_string(),
            created_at: Moment(extension.created_at),
            size_bytes: extension.size_bytes,
            name: extension.name.map(|name| name.to_string()),
            last_used_at: extension.last_used_at.map(Moment),
            checksum: extension.checksum,
        }
    }
}

/// An archive to upload.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it stands in the description only; the form is read as it comes")]
pub(crate) struct UploadExtension {
    /// Letters, digits, `.`, `_`, `-`; unique in the project.
    name: Option<String>,
    /// A ZIP, at most 50 MiB, with `manifest.json` at its root or in its one top folder.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// Archives to load: one name per file, all names first.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it stands in the description only; the form is read as it comes")]
pub(crate) struct LoadExtensions {
    #[schema(rename = "extensions[][name]")]
    names: Vec<String>,
    /// ZIP archives as of an upload.
    #[schema(rename = "extensions[][zip_file]", value_type = Vec<String>)]
    files: Vec<Vec<u8>>,
}

/// Uploads an extension.
#[utoipa::path(
    post, path = "/extensions", tag = "Extensions",
    request_body(content = UploadExtension, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = ExtensionBody),
        (status = 400, description = "A field breaks a rule, or the archive is not safe to unpack", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 409, description = "The name is taken", body = ErrorBody),
        (status = 413, description = "More than 50 MiB", body = ErrorBody),
        (status = 429, description = "The project has as many as it may have", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn upload_extension(mut caller: Authorized) -> Answer {
    let mut form = caller.form(MAX_EXTENSION_BYTES + FORM, &[FILE]).await?;
    let name = form.text("name")?.map(str::to_owned);
    let content = form.next_file().await?.ok_or_else(|| missing(FILE))?.boxed();
    // The rest of the form is read with it: only then is it whole.
    let rest = stream::once(async move {
        match form.next_file().await {
            Ok(None) => None,
            Ok(Some(_)) => Some(Err(OperationError::Broken("the form's part file is given twice".to_owned()))),
            Err(error) => Some(Err(error)),
        }
    });
    let content: ByteStream = content.chain(rest.filter_map(std::future::ready)).boxed();
    let upload = Upload { name, content };
    let kept = caller.finish(|services, scope| async move { services.extensions.upload(&scope, upload).await }).await?;
    let body = ExtensionBody::from(kept);
    Ok(answer::created(&format!("/extensions/{}", body.id), &body))
}

fn missing(field: &str) -> ApiError {
    InvalidInput::of(field, InvalidValue::new(FieldCode::Required, "is required")).into()
}

/// Lists extensions, newest first.
#[utoipa::path(
    get, path = "/extensions", tag = "Extensions",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("name" = Option<String>, Query, description = "The whole name"),
        ("query" = Option<String>, Query, description = "Part of the name"),
    ),
    responses(
        (status = 200, body = [ExtensionBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_extensions(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let given = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let filter = ExtensionFilter { name: given("name")?, query: given("query")? };
    let page = caller.services().extensions.list(caller.scope(), &filter, query.page()?).await?;
    Ok(answer::list(&page.map(ExtensionBody::from)))
}

/// Downloads an extension: the bytes that were uploaded.
#[utoipa::path(
    get, path = "/extensions/{id_or_name}", tag = "Extensions", params(("id_or_name" = String, Path)),
    responses(
        (status = 200, description = "The archive", content_type = "application/octet-stream"),
        (status = 404, description = "There is no such extension", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn download_extension(caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let (extension, content) = caller.services().extensions.download(caller.scope(), &which).await?;
    let name = extension.name.as_ref().map_or_else(|| extension.id.to_string(), ToString::to_string);
    Ok(bytes(content, &name, Some(extension.size_bytes)))
}

/// The archive, to be saved under that name, which is a slug.
fn bytes(content: ByteStream, name: &str, length: Option<u64>) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response
        .content_type(ContentType::octet_stream())
        .insert_header((header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}.zip\"")));
    if let Some(length) = length {
        response.no_chunking(length);
    }
    response.streaming(content.map(|part| part.map_err(|error| actix_web::Error::from(ApiError::internal(error)))))
}

/// Reads what is known of an extension.
#[utoipa::path(
    get, path = "/extensions/{id_or_name}/metadata", tag = "Extensions", params(("id_or_name" = String, Path)),
    responses(
        (status = 200, body = ExtensionBody),
        (status = 404, description = "There is no such extension", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_extension(caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let extension = caller.services().extensions.get(caller.scope(), &which).await?;
    Ok(answer::record(StatusCode::OK, &ExtensionBody::from(extension)))
}

/// Deletes an extension. Sessions that have it keep it.
#[utoipa::path(
    delete, path = "/extensions/{id_or_name}", tag = "Extensions", params(("id_or_name" = String, Path)),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "There is no such extension", body = ErrorBody),
        (status = 409, description = "A browser pool loads it", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn delete_extension(caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    caller.finish(|services, scope| async move { services.extensions.delete(&scope, &which).await }).await?;
    Ok(answer::nothing())
}

/// Fetches an extension from the Chrome Web Store, as a ZIP.
#[utoipa::path(
    get, path = "/extensions/from_chrome_store", tag = "Extensions",
    params(
        ("url" = String, Query, description = "The extension's page in the store"),
        ("os" = Option<String>, Query, description = "linux, win or mac; default: linux"),
    ),
    responses(
        (status = 200, description = "The archive", content_type = "application/octet-stream"),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = 502, description = "The store does not answer, or has no such extension", body = ErrorBody),
        (status = "5XX", description = "The server failed", body = ErrorBody),
    )
)]
pub(crate) async fn extension_from_web_store(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let (url, os) = (query.text("url")?, query.text("os")?);
    let content = caller.services().extensions.from_web_store(url, os).await?;
    Ok(bytes(content, "extension", None))
}

/// Loads extensions into a session. Chromium is started anew with its profile; debugging connections end.
#[utoipa::path(
    post, path = "/browsers/{id}/extensions", tag = "Browsers", params(("id" = String, Path)),
    request_body(content = LoadExtensions, content_type = "multipart/form-data"),
    responses(
        (status = 204, description = "They are loaded"),
        (status = 400, description = "A field breaks a rule, an archive is not safe, or Chromium does not take it", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = 413, description = "An archive has more than 50 MiB", body = ErrorBody),
        (status = 429, description = "The session has as many as it may have, or no room", body = ErrorBody),
        (status = "5XX", description = "The browser did not come up again", body = ErrorBody),
    )
)]
pub(crate) async fn load_extensions(mut inside: SessionAccess) -> Answer {
    let payload = inside.take_payload()?;
    let longest = MAX_EXTENSION_BYTES * MAX_LOADED_AT_ONCE as u64 + FORM;
    let mut form = Form::read(&inside.request, payload, longest, &[FILES]).await?;
    let names = form.texts(NAMES);
    let extensions = inside.services().extensions.clone();
    extensions.check_names(&names, form.has_file())?;
    let unequal = || OperationError::Broken(format!("there must be as many {FILES} as {NAMES}"));
    let mut wishes = Vec::new();
    for (n, name) in names.into_iter().enumerate() {
        let file = form.next_file().await?.ok_or_else(unequal)?;
        let field = format!("extensions[{n}].zip_file");
        wishes.push((name, extensions.inspect(&field, file.boxed()).await?));
    }
    if form.next_file().await?.is_some() {
        return Err(unequal().into());
    }
    // To its end, whether or not the caller waits: a browser that is started anew halfway is nobody's.
    let (runtime, session) = (inside.services().runtime.clone(), inside.session.clone());
    let loaded = runtime.spawn(async move { extensions.load(&session, wishes).await });
    loaded.await.map_err(ApiError::internal)??;
    Ok(answer::nothing())
}
