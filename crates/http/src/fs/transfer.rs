//! The handlers that list, download and write files.

use actix_web::{
    HttpResponse,
    http::header::{self, HeaderValue},
    web::Bytes,
};
use casement_domain::{
    fs::{AbsolutePath, Archive},
    session_operation::OperationError,
};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;

use super::record::FileInfo;
use crate::{
    answer::{self, Answer},
    body::BodyEnd,
    query::Verbatim,
    request::{ActiveSession, Request},
    schema::IntoParams,
    stream as streamed,
};

/// The maximum bytes of one upload.
pub(crate) const MAX_UPLOAD: u64 = 4 << 30;

/// A file or directory of the session.
#[derive(Deserialize, IntoParams)]
pub(super) struct PathParams {
    /// An absolute path.
    #[param(required, value_type = String)]
    path: Option<Verbatim>,
}

impl PathParams {
    fn path(self) -> Option<String> {
        self.path.map(|Verbatim(path)| path)
    }
}

/// The file to write.
#[derive(Deserialize, IntoParams)]
pub(super) struct WriteFileParams {
    /// An absolute path, whose directory exists.
    #[param(required, value_type = String)]
    path: Option<Verbatim>,
    /// The permissions in octal digits. Default: 644.
    #[param(value_type = Option<String>)]
    mode: Option<Verbatim>,
}

pub(crate) async fn list_files(request: Request<ActiveSession>) -> Answer {
    let path = request.query::<PathParams>()?.path();
    let listed = request.services().files.list(request.session(), path).await?;
    let guard = listed.guard;
    let body = array(listed.path, listed.entries.map(move |batch| holding(&guard, batch)).boxed());
    let mut response = HttpResponse::Ok();
    response.content_type("application/json");
    Ok(streamed::answer(response, request, body))
}

/// Renders batches of entries as one JSON array.
fn array(
    path: AbsolutePath,
    entries: casement_domain::fs::Entries,
) -> impl Stream<Item = Result<Bytes, OperationError>> + 'static {
    let mut first = true;
    let items = entries.map(move |batch| {
        let mut text = Vec::new();
        for entry in batch? {
            text.push(if std::mem::take(&mut first) { b'[' } else { b',' });
            let entry_path = path.child(&entry.name);
            // Serialization of this type cannot fail.
            text.extend(serde_json::to_vec(&FileInfo::new(entry, entry_path)).unwrap_or_default());
        }
        Ok((Bytes::from(text), first))
    });
    // Whether the array is empty is known only at its end.
    stream::unfold((Some(items.boxed_local()), true), |(items, empty)| async move {
        let mut items = items?;
        match items.next().await {
            Some(Ok((text, empty))) => Some((Ok(text), (Some(items), empty))),
            Some(Err(error)) => Some((Err(error), (None, empty))),
            None => Some((Ok(Bytes::from_static(if empty { b"[]" } else { b"]" })), (None, empty))),
        }
    })
}

pub(crate) async fn file_info(request: Request<ActiveSession>) -> Answer {
    let path = request.query::<PathParams>()?.path();
    let (path, entry) = request.services().files.info(request.session(), path).await?;
    Ok(HttpResponse::Ok().json(FileInfo::new(entry, path.to_string())))
}

pub(crate) async fn read_file(request: Request<ActiveSession>) -> Answer {
    let path = request.query::<PathParams>()?.path();
    let file = request.services().files.read(request.session(), path).await?;
    let name = file.path.name().unwrap_or("file").to_owned();
    Ok(download(request, "application/octet-stream", &name, file))
}

pub(crate) async fn download_dir_zip(request: Request<ActiveSession>) -> Answer {
    let path = request.query::<PathParams>()?.path();
    let archive = request.services().files.archive(request.session(), path).await?;
    let name = format!("{}.zip", archive.path.name().unwrap_or("root"));
    Ok(download(request, "application/zip", &name, archive))
}

fn download(request: Request<ActiveSession>, media_type: &'static str, name: &str, content: Archive) -> HttpResponse {
    let Archive { length, bytes, guard, .. } = content;
    let mut response = HttpResponse::Ok();
    if let Some(length) = length {
        response.no_chunking(length);
    }
    response.content_type(media_type).insert_header((header::CONTENT_DISPOSITION, attachment(name)));
    streamed::answer(response, request, bytes.map(move |piece| holding(&guard, piece)))
}

/// Returns `value`. A closure that calls this captures the guard and holds it until the closure is dropped.
fn holding<G, T>(_guard: &G, value: T) -> T {
    value
}

/// Returns a `Content-Disposition` that saves under `name`, with an ASCII fallback (RFC 6266).
fn attachment(name: &str) -> HeaderValue {
    let ascii: String = name
        .chars()
        .map(|c| if (c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '%')) || c == ' ' { c } else { '_' })
        .collect();
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    let text = if ascii == name {
        format!("attachment; filename=\"{ascii}\"")
    } else {
        format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
    };
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}

pub(crate) async fn write_file(mut request: Request<ActiveSession>) -> Answer {
    let WriteFileParams { path, mode } = request.query()?;
    let (path, mode) = (path.map(|Verbatim(path)| path), mode.map(|Verbatim(mode)| mode));
    let (content, body_end) = request.body(MAX_UPLOAD)?;
    let written = request.services().files.write(request.session(), path, mode, content).await;
    upload_response(written, Some(body_end)).await
}

/// Responds to an upload. An error is sent only after the whole body was received, because few clients read a response
/// earlier.
pub(crate) async fn upload_response(result: Result<(), OperationError>, body_end: Option<BodyEnd>) -> Answer {
    if let (Err(_), Some(body_end)) = (&result, body_end) {
        body_end.wait().await;
    }
    result?;
    Ok(answer::nothing())
}

#[cfg(test)]
mod tests {
    use super::attachment;

    #[test]
    fn no_name_of_a_file_gets_out_of_its_header() {
        let text = |name: &str| attachment(name).to_str().expect("ASCII").to_owned();
        assert_eq!(text("a b.zip"), "attachment; filename=\"a b.zip\"");
        assert_eq!(
            text("a\"\r\nX: y\u{202e}ü%41.zip"),
            "attachment; filename=\"a___X: y__%41.zip\"; filename*=UTF-8''a%22%0D%0AX%3A%20y%E2%80%AE%C3%BC%2541.zip"
                .replace("__%41", "___41"),
        );
    }
}
