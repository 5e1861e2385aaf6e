//! The routes `/extensions`, and the route that loads extensions into a running session.

use std::collections::BTreeMap;

use actix_web::{
    HttpResponse,
    http::{StatusCode, header, header::ContentType},
};
use casement_domain::{
    engine::Capability,
    extension::{
        Extension, ExtensionFilter, Extensions, InspectedArchive, MAX_EXTENSION_BYTES, MAX_LOADED_AT_ONCE, Upload,
    },
    field::{FieldCode, InvalidInput, InvalidValue},
    session_operation::{ByteStream, OperationError},
};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use crate::{
    answer::{self, Answer, Moment},
    error::ApiError,
    multipart::{Form, Items, Part},
    operation::{ARCHIVED, LIMIT_REACHED, NAME_TAKEN, Operations},
    query::non_empty,
    request::{ActiveSession, ProjectKey, Request},
    schema::{IntoParams, ToSchema},
};

/// The maximum size of a form without its files, in bytes.
const FORM: u64 = 1 << 20;
const FILE: &str = "file";
const LIST: &str = "extensions";
const NAME: &str = "name";
const FILES: &str = "extensions[][zip_file]";
const ZIP_FILE: &str = "zip_file";

/// An extension.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Extension)]
pub(crate) struct ExtensionBody {
    id: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    /// The size of the archive in bytes.
    size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The time at which a browser was last started with the extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Moment>,
    /// SHA-256 of the archive, in hexadecimal.
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
#[expect(dead_code, reason = "only the OpenAPI document uses it; the form is read as a stream")]
pub(crate) struct UploadExtension {
    /// The name: letters, digits, `.`, `_`, `-`; unique in the project.
    name: Option<String>,
    /// A ZIP archive of at most 50 MiB, with `manifest.json` at its root or in its only top directory.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// Archives to load, each with a name. The parts have an index, as `extensions[0][name]`, or none: the n-th name belongs
/// to the n-th archive then.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only the OpenAPI document uses it; the form is read as a stream")]
pub(crate) struct LoadExtensions {
    #[schema(rename = "extensions[][name]")]
    names: Vec<String>,
    /// ZIP archives, with the same rules as for an upload.
    #[schema(rename = "extensions[][zip_file]", value_type = Vec<String>)]
    files: Vec<Vec<u8>>,
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Extensions", "The extension does not exist");
    api.post("/extensions", "upload_extension", upload_extension)
        .summary("Uploads an extension.")
        .form::<UploadExtension>()
        .created::<ExtensionBody>()
        .refuses([
            ("400", "A field breaks a rule, or the archive is not safe to unpack"),
            ARCHIVED,
            NAME_TAKEN,
            ("413", "The archive is longer than 50 MiB"),
            LIMIT_REACHED,
        ]);
    api.get("/extensions", "list_extensions", list_extensions)
        .summary("Lists extensions, newest first.")
        .query::<ExtensionListParams>()
        .returns_page::<ExtensionBody>();
    // Declared before the paths with a parameter in this position, which would match too.
    api.get("/extensions/from_chrome_store", "extension_from_web_store", extension_from_web_store)
        .summary("Downloads an extension from the Chrome Web Store, as a ZIP archive.")
        .query::<WebStoreParams>()
        .file("The archive")
        .refuses([("502", "The store does not respond, or has no such extension")])
        .fails("The server failed");
    api.get("/extensions/{id_or_name}", "download_extension", download_extension)
        .summary("Downloads the archive of an extension as it was uploaded.")
        .file("The archive");
    api.get("/extensions/{id_or_name}/metadata", "get_extension", get_extension)
        .summary("Returns the record of an extension.")
        .returns::<ExtensionBody>();
    api.delete("/extensions/{id_or_name}", "delete_extension", delete_extension)
        .summary("Deletes an extension. Sessions that have loaded it keep it.")
        .no_content("Deleted")
        .refuses([("409", "A browser pool loads the extension")]);
    api.resource("Browsers", "The session does not exist");
    api.post("/browsers/{id_or_name}/extensions", "load_extensions", load_extensions)
        .summary("Loads extensions into a session. Chromium restarts with its profile; debugging connections end.")
        .form::<LoadExtensions>()
        .no_content("Loaded")
        .refuses([
            ("400", "A field breaks a rule, an archive is not safe to unpack, or Chromium rejects it"),
            ("413", "An archive is longer than 50 MiB"),
            ("429", "The session has as many extensions as it may have, or no disk space"),
        ])
        .fails("The browser did not restart");
}

async fn upload_extension(mut request: Request<ProjectKey>) -> Answer {
    let mut form = request.form(MAX_EXTENSION_BYTES + FORM, &[FILE]).await?;
    let body_end = form.take_body_end();
    let stored = store(&request, form).await;
    if let (Err(_), Some(body_end)) = (&stored, body_end) {
        // A client that still sends would not read the response.
        body_end.wait().await;
    }
    stored
}

async fn store(request: &Request<ProjectKey>, mut form: Form) -> Answer {
    request.scope().writable()?;
    let file = form.next_file().await?.ok_or_else(|| missing(FILE))?;
    let content = request.services().extensions.inspect(FILE, file.boxed()).await?;
    form.finish(FILE).await?;
    let name = form.text(NAME)?.map(str::to_owned);
    let upload = Upload { name, content };
    let stored =
        request.finish(|services, scope| async move { services.extensions.upload(&scope, upload).await }).await?;
    let body = ExtensionBody::from(stored);
    Ok(answer::created(&format!("/extensions/{}", body.id), &body))
}

fn missing(field: &str) -> ApiError {
    InvalidInput::of(field, InvalidValue::new(FieldCode::Required, "is required")).into()
}

/// The filter of a list of extensions.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ExtensionListParams {
    /// The whole name.
    name: Option<String>,
    /// Part of the name.
    query: Option<String>,
}

async fn list_extensions(request: Request<ProjectKey>) -> Answer {
    let ExtensionListParams { name, query } = request.query()?;
    let filter = ExtensionFilter { name: non_empty(name), query: non_empty(query) };
    let page = request.services().extensions.list(request.scope(), &filter, request.page()?).await?;
    Ok(answer::list(&page.map(ExtensionBody::from)))
}

async fn download_extension(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let (extension, content) = request.services().extensions.download(request.scope(), &which).await?;
    let name = extension.name.as_ref().map_or_else(|| extension.id.to_string(), ToString::to_string);
    Ok(bytes(content, &name, Some(extension.size_bytes)))
}

/// Returns an archive as a download. `name`, without `.zip`, consists of letters, digits, `.`, `_` and `-`.
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

async fn get_extension(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let extension = request.services().extensions.get(request.scope(), &which).await?;
    Ok(answer::record(StatusCode::OK, &ExtensionBody::from(extension)))
}

async fn delete_extension(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    request.finish(|services, scope| async move { services.extensions.delete(&scope, &which).await }).await?;
    Ok(answer::nothing())
}

/// An extension in the Chrome Web Store.
#[derive(Deserialize, IntoParams)]
pub(crate) struct WebStoreParams {
    /// The URL of the extension's page in the store.
    #[param(required, value_type = String)]
    url: Option<String>,
    /// `linux`, `win` or `mac`. Default: `linux`.
    os: Option<String>,
}

async fn extension_from_web_store(request: Request<ProjectKey>) -> Answer {
    let WebStoreParams { url, os } = request.query()?;
    let content = request.services().extensions.from_web_store(url.as_deref(), os.as_deref()).await?;
    Ok(bytes(content, "extension", None))
}

async fn load_extensions(mut request: Request<ActiveSession>) -> Answer {
    // Before the archives are read.
    request.services().sessions.check_engine(request.session(), Capability::Extensions)?;
    let mut form = request.form(MAX_EXTENSION_BYTES * MAX_LOADED_AT_ONCE as u64 + FORM, &[FILES]).await?;
    let extensions = request.services().extensions.clone();
    let uploads = inspected(&mut form, &extensions).await?;
    // Runs to its end even if the caller disconnects, because a restart must not stop midway.
    let (runtime, session) = (request.services().runtime.clone(), request.session().clone());
    let loaded = runtime.spawn(async move { extensions.load(&session, uploads).await });
    loaded.await.map_err(ApiError::internal)??;
    Ok(answer::nothing())
}

/// Reads the form; returns the names and the inspected archives.
async fn inspected(
    form: &mut Form,
    extensions: &Extensions,
) -> Result<Vec<(String, InspectedArchive)>, OperationError> {
    let (mut items, mut names, mut archives) = (Items::new(LIST), BTreeMap::new(), BTreeMap::new());
    for (part, value) in form.texts() {
        if let Some((NAME, item)) = items.place(part)? {
            names.insert(item, value.to_owned());
        }
    }
    if !form.has_file() || !names.is_empty() {
        extensions.check_names(&names.values().cloned().collect::<Vec<_>>())?;
    }
    while let Some(part) = form.next_part().await? {
        match part {
            Part::Text { name, value } => {
                if let Some((NAME, item)) = items.place(&name)? {
                    names.insert(item, value);
                }
            }
            Part::File(file) => {
                let placed = items.place(&file.name)?.map(|(_, item)| item);
                let Some(item) = placed else { continue };
                if item >= MAX_LOADED_AT_ONCE {
                    let message = format!("must have at most {MAX_LOADED_AT_ONCE}");
                    return Err(InvalidInput::of(LIST, InvalidValue::new(FieldCode::TooMany, message)).into());
                }
                let field = format!("{LIST}[{item}].{ZIP_FILE}");
                archives.insert(item, extensions.inspect(&field, file.boxed()).await?);
            }
        }
    }
    items.check_complete(&[NAME, ZIP_FILE])?;
    Ok(names.into_values().zip(archives.into_values()).collect())
}
