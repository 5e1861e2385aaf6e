//! Listing, downloading and uploading files.

use actix_web::{
    HttpResponse,
    http::header::{self, HeaderValue},
    web::Bytes,
};
use casement_domain::{
    fs::{AbsolutePath, Archive, Files, Upload},
    session_operation::OperationError,
};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;

use super::record::{AnyBytes, FileInfo};
use crate::{
    answer::{self, Answer},
    body::BodyEnd,
    caller::SessionAccess,
    error::ErrorBody,
    multipart::Form,
    stream as streamed,
};

/// The maximum bytes of one upload.
pub(crate) const MAX_UPLOAD: u64 = 4 << 30;
/// The chunks of an upload that may wait for the session.
const MAX_QUEUED_CHUNKS: usize = 4;
const DEST_PATHS: &str = "files[][dest_path]";
const FILES: &str = "files[][file]";

/// Lists what stands in a directory, sorted by the bytes of the names.
#[utoipa::path(
    get, path = "/browsers/{id}/fs/list_files", tag = "Files",
    params(("id" = String, Path), ("path" = String, Query, description = "Absolute")),
    responses(
        (status = 200, body = [FileInfo]),
        (status = 400, description = "The path breaks a rule, or is not a directory", body = ErrorBody),
        (status = 403, description = "The session's user may not read it", body = ErrorBody),
        (status = 404, description = "There is no such session or path", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn list_files(inside: SessionAccess) -> Answer {
    let path = inside.query()?.raw("path")?.map(str::to_owned);
    let listed = inside.services().files.list(&inside.session, path).await?;
    let guard = listed.guard;
    let body = array(listed.path, listed.entries.map(move |batch| holding(&guard, batch)).boxed());
    let mut response = HttpResponse::Ok();
    response.content_type("application/json");
    Ok(streamed::answer(response, inside, body))
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
            // Serialization of our own types cannot fail.
            text.extend(serde_json::to_vec(&FileInfo::new(entry, entry_path)).unwrap_or_default());
        }
        Ok((Bytes::from(text), first))
    });
    // Only the end tells whether the array is empty.
    stream::unfold((Some(items.boxed_local()), true), |(items, empty)| async move {
        let mut items = items?;
        match items.next().await {
            Some(Ok((text, empty))) => Some((Ok(text), (Some(items), empty))),
            Some(Err(error)) => Some((Err(error), (None, empty))),
            None => Some((Ok(Bytes::from_static(if empty { b"[]" } else { b"]" })), (None, empty))),
        }
    })
}

/// Tells what is at a path.
#[utoipa::path(
    get, path = "/browsers/{id}/fs/file_info", tag = "Files",
    params(("id" = String, Path), ("path" = String, Query, description = "Absolute")),
    responses(
        (status = 200, body = FileInfo),
        (status = 400, description = "The path breaks a rule", body = ErrorBody),
        (status = 403, description = "The session's user may not see it", body = ErrorBody),
        (status = 404, description = "There is no such session or path", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn file_info(inside: SessionAccess) -> Answer {
    let path = inside.query()?.raw("path")?.map(str::to_owned);
    let (path, entry) = inside.services().files.info(&inside.session, path).await?;
    Ok(HttpResponse::Ok().json(FileInfo::new(entry, path.to_string())))
}

/// Reads a file.
#[utoipa::path(
    get, path = "/browsers/{id}/fs/read_file", tag = "Files",
    params(("id" = String, Path), ("path" = String, Query, description = "Absolute")),
    responses(
        (status = 200, body = inline(AnyBytes), content_type = "application/octet-stream"),
        (status = 400, description = "The path breaks a rule, or is a directory", body = ErrorBody),
        (status = 403, description = "The session's user may not read it, or it is no regular file", body = ErrorBody),
        (status = 404, description = "There is no such session or path", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn read_file(inside: SessionAccess) -> Answer {
    let path = inside.query()?.raw("path")?.map(str::to_owned);
    let file = inside.services().files.read(&inside.session, path).await?;
    let name = file.path.name().unwrap_or("file").to_owned();
    Ok(download(inside, "application/octet-stream", &name, file))
}

/// Downloads a directory as a ZIP archive, which is made while it is sent.
#[utoipa::path(
    get, path = "/browsers/{id}/fs/download_dir_zip", tag = "Files",
    params(("id" = String, Path), ("path" = String, Query, description = "Absolute")),
    responses(
        (status = 200, body = inline(AnyBytes), content_type = "application/zip"),
        (status = 400, description = "The path breaks a rule, or is not a directory", body = ErrorBody),
        (status = 403, description = "The session's user may not read it", body = ErrorBody),
        (status = 404, description = "There is no such session or path", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn download_dir_zip(inside: SessionAccess) -> Answer {
    let path = inside.query()?.raw("path")?.map(str::to_owned);
    let archive = inside.services().files.archive(&inside.session, path).await?;
    let name = format!("{}.zip", archive.path.name().unwrap_or("root"));
    Ok(download(inside, "application/zip", &name, archive))
}

fn download(inside: SessionAccess, media_type: &'static str, name: &str, content: Archive) -> HttpResponse {
    let Archive { length, bytes, guard, .. } = content;
    let mut response = HttpResponse::Ok();
    if let Some(length) = length {
        response.no_chunking(length);
    }
    response.content_type(media_type).insert_header((header::CONTENT_DISPOSITION, attachment(name)));
    streamed::answer(response, inside, bytes.map(move |piece| holding(&guard, piece)))
}

/// Returns `value`. A closure that calls this captures the guard and so keeps it alive.
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

/// Writes a file, in place of one that is there.
#[utoipa::path(
    put, path = "/browsers/{id}/fs/write_file", tag = "Files",
    params(
        ("id" = String, Path), ("path" = String, Query, description = "Absolute; its directory must be there"),
        ("mode" = Option<String>, Query, description = "Octal digits; default: 644"),
    ),
    request_body(content = inline(AnyBytes), content_type = "application/octet-stream"),
    responses(
        (status = 204, description = "Written"),
        (status = 400, description = "A field breaks a rule, or the path is a directory", body = ErrorBody),
        (status = 403, description = "The session's user may not write there", body = ErrorBody),
        (status = 404, description = "There is no such session or directory", body = ErrorBody),
        (status = 413, description = "More than 4 GiB", body = ErrorBody),
        (status = 429, description = "The session's disk is full", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn write_file(mut inside: SessionAccess) -> Answer {
    let query = inside.query()?;
    let (path, mode) = (query.raw("path")?.map(str::to_owned), query.raw("mode")?.map(str::to_owned));
    let (content, body_end) = inside.body(MAX_UPLOAD)?;
    let written = inside.services().files.write(&inside.session, path, mode, content).await;
    upload_response(written, Some(body_end)).await
}

/// Responds to an upload. An error is sent after the whole body was received, because few clients read a response earlier.
pub(crate) async fn upload_response(result: Result<(), OperationError>, body_end: Option<BodyEnd>) -> Answer {
    if let (Err(_), Some(body_end)) = (&result, body_end) {
        body_end.wait().await;
    }
    result?;
    Ok(answer::nothing())
}

/// Files and where they go: the n-th path belongs to the n-th file. All paths come before the files.
#[derive(ToSchema)]
#[schema(as = UploadFiles)]
#[expect(dead_code, reason = "it stands in the description only; the form is read as it comes")]
pub(crate) struct FilesForm {
    /// 1 to 100.
    files: Vec<FileForm>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "it stands in the description only; the form is read as it comes")]
struct FileForm {
    /// Absolute; directories are made.
    dest_path: String,
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// Uploads several files: all of them or none.
#[utoipa::path(
    post, path = "/browsers/{id}/fs/upload", tag = "Files", params(("id" = String, Path)),
    request_body(content = FilesForm, content_type = "multipart/form-data"),
    responses(
        (status = 204, description = "Uploaded"),
        (status = 400, description = "A field breaks a rule, or the form cannot be read", body = ErrorBody),
        (status = 403, description = "The session's user may not write there", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = 413, description = "More than 4 GiB", body = ErrorBody),
        (status = 429, description = "The session's disk is full", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn upload_files(mut inside: SessionAccess) -> Answer {
    let payload = inside.take_payload()?;
    let mut form = Form::read(&inside.request, payload, MAX_UPLOAD, &[FILES]).await?;
    let body_end = form.take_body_end();
    let uploaded = match Files::upload_paths(form.texts(DEST_PATHS)) {
        Ok(paths) => inside.services().files.upload(&inside.session, uploads(form, paths)).await,
        Err(error) => {
            drop(form);
            Err(error)
        }
    };
    upload_response(uploaded, body_end).await
}

/// Streams the files of a form, each after its path.
fn uploads(form: Form, paths: Vec<AbsolutePath>) -> casement_domain::fs::Uploads {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
    tokio::spawn(async move {
        if let Err(error) = forward(form, paths, &sender).await {
            // If the receiver is dropped, the upload has ended and the error has no reader.
            drop(sender.send(Err(error)).await);
        }
    });
    ReceiverStream::new(receiver).boxed()
}

async fn forward(
    mut form: Form,
    paths: Vec<AbsolutePath>,
    sender: &mpsc::Sender<Result<Upload, OperationError>>,
) -> Result<(), OperationError> {
    let closed = |_| OperationError::Broken("the upload is over".to_owned());
    let unequal = || OperationError::Broken(format!("there must be as many {FILES} as {DEST_PATHS}"));
    for path in paths {
        let mut file = form.next_file().await?.ok_or_else(unequal)?;
        sender.send(Ok(Upload::File(path))).await.map_err(closed)?;
        while let Some(piece) = file.next().await.transpose()? {
            sender.send(Ok(Upload::Data(piece))).await.map_err(closed)?;
        }
    }
    if form.next_file().await?.is_some() { Err(unequal()) } else { Ok(()) }
}

/// An archive and where it is unpacked. The path comes before the archive.
#[derive(ToSchema)]
#[schema(as = UploadZip)]
#[expect(dead_code, reason = "it stands in the description only; the form is read as it comes")]
pub(crate) struct ZipForm {
    /// Absolute; the directory is made.
    dest_path: String,
    #[schema(value_type = String, format = Binary)]
    zip_file: Vec<u8>,
}

/// Uploads a ZIP archive and unpacks it: all of it or nothing. What is there already is replaced.
#[utoipa::path(
    post, path = "/browsers/{id}/fs/upload_zip", tag = "Files", params(("id" = String, Path)),
    request_body(content = ZipForm, content_type = "multipart/form-data"),
    responses(
        (status = 204, description = "Unpacked"),
        (status = 400, description = "A field breaks a rule, or the archive holds what is not safe", body = ErrorBody),
        (status = 403, description = "The session's user may not write there", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = 413, description = "More than 4 GiB", body = ErrorBody),
        (status = 429, description = "The session's disk has no room for it", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn upload_zip(mut inside: SessionAccess) -> Answer {
    let payload = inside.take_payload()?;
    let mut form = Form::read(&inside.request, payload, MAX_UPLOAD, &["zip_file"]).await?;
    let body_end = form.take_body_end();
    upload_response(unpack(&inside, form).await, body_end).await
}

async fn unpack(inside: &SessionAccess, mut form: Form) -> Result<(), OperationError> {
    let path = form.text("dest_path")?.map(str::to_owned);
    let path = Files::unpack_path(path, form.has_file())?;
    let Some(archive) = form.next_file().await? else {
        return Err(OperationError::Broken("the form has no zip_file".to_owned()));
    };
    // The form is complete only if no other part follows the archive.
    let end = stream::once(async move {
        match form.next_file().await {
            Ok(None) => Ok(Bytes::new()),
            Ok(Some(_)) => Err(OperationError::Broken("the form's part zip_file is given twice".to_owned())),
            Err(error) => Err(error),
        }
    });
    let archive = archive.chain(end).filter(|piece| std::future::ready(!matches!(piece, Ok(p) if p.is_empty())));
    inside.services().files.unpack(&inside.session, path, archive.boxed()).await
}

#[cfg(test)]
mod tests {
    use casement_domain::fs::{AbsolutePath, Files, Upload};
    use casement_domain::session_operation::OperationError;
    use futures_util::TryStreamExt as _;

    use super::{DEST_PATHS, FILES, attachment, uploads};
    use crate::multipart::tests::{form, part};

    /// The files of a form of such parts.
    async fn uploaded(parts: &[(&str, &str)]) -> Result<Vec<(String, String)>, OperationError> {
        let body: String = parts.iter().map(|(name, content)| part(name, content)).collect::<String>() + "--b--\r\n";
        let form = form(&body, 11).await?;
        let paths: Vec<AbsolutePath> = Files::upload_paths(form.texts(DEST_PATHS))?;
        let mut files = Vec::new();
        for part in uploads(form, paths).try_collect::<Vec<_>>().await? {
            match (part, files.last_mut()) {
                (Upload::File(path), _) => files.push((path.to_string(), String::new())),
                (Upload::Data(data), Some((_, content))) => content.push_str(&String::from_utf8_lossy(&data)),
                (Upload::Data(_), None) => panic!("bytes of no file"),
            }
        }
        Ok(files)
    }

    #[tokio::test]
    async fn the_nth_path_belongs_to_the_nth_file() {
        let (a, b) = ((DEST_PATHS, "/a"), (DEST_PATHS, "/b/../c"));
        let both = uploaded(&[a, b, (FILES, "one"), (FILES, "")]).await.expect("two files");
        assert_eq!(both, [("/a".to_owned(), "one".to_owned()), ("/c".to_owned(), String::new())]);
        for unequal in [vec![a, b, (FILES, "one")], vec![a, (FILES, "one"), (FILES, "two")], vec![a]] {
            assert!(matches!(uploaded(&unequal).await, Err(OperationError::Broken(_))), "{unequal:?}");
        }
    }

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
