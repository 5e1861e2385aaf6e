//! Multipart forms: the text parts come first, then the files, which are streamed.
//!
//! The parser reads from its source until it is pending and does not bound the head of a part. So the source here
//! yields one chunk per poll, and limits the bytes while a head is read.

use std::{
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use actix_web::{
    HttpRequest,
    http::header,
    web::{Bytes, Payload},
};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{Stream, StreamExt as _, stream};
use multer::{Field, Multipart};

use crate::{
    body::{self, BodyEnd},
    error::{ApiError, Code},
};

/// The maximum number of parts of one form.
const MAX_PARTS: usize = 1000;
/// The maximum size of all texts of one form together, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// The maximum number of bytes that are read from the source for the head of one part. The last chunk may exceed it.
const MAX_HEAD_BYTES: usize = 256 << 10;

/// A form, with its texts in memory and its files as streams.
pub(crate) struct Form {
    texts: Vec<(String, String)>,
    parts: Parts,
    /// The first file, found while the texts were read.
    first_file: Option<File>,
    body_end: Option<BodyEnd>,
}

/// The parts that are not read yet.
struct Parts {
    multipart: Option<Multipart<'static>>,
    remaining: Arc<AtomicUsize>,
    count: usize,
    file_names: Vec<String>,
}

/// A file part. Its file name and its media type are ignored.
pub(crate) struct File {
    /// The name of the part in the form.
    pub(crate) name: String,
    field: Field<'static>,
}

impl Form {
    /// Reads the texts of a form of at most `max_bytes` bytes, up to the first part whose name is in `files`. An empty
    /// body is an empty form.
    ///
    /// # Errors
    /// `unsupported_media_type`, `bad_request`, `payload_too_large`, `request_timeout`.
    pub(crate) async fn read(
        request: &HttpRequest,
        payload: Payload,
        max_bytes: u64,
        files: &[&str],
    ) -> Result<Self, ApiError> {
        let boundary = boundary(request)?;
        let (content, body_end) = body::stream(request, payload, max_bytes)?;
        match Self::parse(content, boundary, files).await {
            Ok(form) => Ok(Self { body_end: Some(body_end), ..form }),
            Err(error) => {
                body_end.wait().await;
                Err(error.into())
            }
        }
    }

    /// Takes the end of the body, to be awaited before an error response is sent.
    pub(crate) fn take_body_end(&mut self) -> Option<BodyEnd> {
        self.body_end.take()
    }

    async fn parse(mut content: ByteStream, boundary: String, files: &[&str]) -> Result<Self, OperationError> {
        let remaining = Arc::new(AtomicUsize::new(usize::MAX));
        let multipart = match content.next().await.transpose()? {
            None => None,
            Some(first) => {
                let content = stream::iter([Ok(first)]).chain(content).boxed();
                let source = BoundedSource { content, remaining: Arc::clone(&remaining), has_yielded: false };
                Some(Multipart::new(source, boundary))
            }
        };
        let file_names = files.iter().map(|name| (*name).to_owned()).collect();
        let mut parts = Parts { multipart, remaining, count: 0, file_names };
        let mut texts = Vec::new();
        let mut remaining_bytes = MAX_TEXT_BYTES;
        let first_file = loop {
            match parts.next().await? {
                None => break None,
                Some(file) if parts.file_names.contains(&file.name) => break Some(file),
                Some(part) => texts.push(part.text(&mut remaining_bytes).await?),
            }
        };
        Ok(Self { texts, parts, first_file, body_end: None })
    }

    /// Returns the text of that name.
    ///
    /// # Errors
    /// `bad_request` if two parts have that name.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, OperationError> {
        let mut found = self.texts.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        match (found.next(), found.next()) {
            (first, None) => Ok(first),
            _ => Err(OperationError::Broken(format!("the form's part {name} is given twice"))),
        }
    }

    /// Returns all texts of that name, in order.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        self.texts.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    /// Returns the distinct keys in the first brackets of the names `name[…]`.
    pub(crate) fn names_in<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let inner =
            move |key: &'a str| key.strip_prefix(name)?.strip_prefix('[')?.split_once(']').map(|(inner, _)| inner);
        let found: std::collections::BTreeSet<&str> = self.texts.iter().filter_map(|(key, _)| inner(key)).collect();
        found.into_iter()
    }

    /// Returns whether the form has a file.
    pub(crate) fn has_file(&self) -> bool {
        self.first_file.is_some()
    }

    /// Returns the content of the only file; `None` if the form has none. The stream ends after the rest of the form was
    /// read, and with an error if that is invalid or has another file.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) async fn only_file(mut self, name: &'static str) -> Result<Option<ByteStream>, OperationError> {
        let Some(file) = self.next_file().await? else { return Ok(None) };
        let rest = stream::once(async move {
            match self.next_file().await {
                Ok(None) => None,
                Ok(Some(_)) => Some(Err(OperationError::Broken(format!("the form's part {name} is given twice")))),
                Err(error) => Some(Err(error)),
            }
        });
        Ok(Some(file.chain(rest.filter_map(std::future::ready)).boxed()))
    }

    /// Returns the next file. The previous one must have been read to its end or dropped.
    ///
    /// # Errors
    /// The body is malformed, or a text follows a file.
    pub(crate) async fn next_file(&mut self) -> Result<Option<File>, OperationError> {
        if let Some(file) = self.first_file.take() {
            return Ok(Some(file));
        }
        match self.parts.next().await? {
            Some(file) if !self.parts.file_names.contains(&file.name) => {
                Err(OperationError::Broken(format!("the form's part {} must come before the files", file.name)))
            }
            next => Ok(next),
        }
    }
}

impl Parts {
    async fn next(&mut self) -> Result<Option<File>, OperationError> {
        let Some(multipart) = &mut self.multipart else { return Ok(None) };
        self.remaining.store(MAX_HEAD_BYTES, Ordering::Relaxed);
        let field = multipart.next_field().await.map_err(form_error)?;
        self.remaining.store(usize::MAX, Ordering::Relaxed);
        let Some(field) = field else { return Ok(None) };
        self.count += 1;
        if self.count > MAX_PARTS {
            return Err(OperationError::Broken(format!("a form has at most {MAX_PARTS} parts")));
        }
        let name = field.name().unwrap_or_default().to_owned();
        Ok(Some(File { name, field }))
    }
}

impl File {
    async fn text(mut self, remaining_bytes: &mut usize) -> Result<(String, String), OperationError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await.transpose()? {
            *remaining_bytes = remaining_bytes.checked_sub(piece.len()).ok_or_else(|| {
                OperationError::TooLarge(format!("the texts of a form have at most {MAX_TEXT_BYTES} bytes"))
            })?;
            bytes.extend_from_slice(&piece);
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| OperationError::Broken(format!("the form's part {} is not UTF-8", self.name)))?;
        Ok((mem::take(&mut self.name), text))
    }
}

impl Stream for File {
    type Item = Result<Bytes, OperationError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.field.poll_next_unpin(context).map(|next| next.map(|piece| piece.map_err(form_error)))
    }
}

/// Yields one chunk per poll, and fails when no bytes remain.
struct BoundedSource {
    content: ByteStream,
    remaining: Arc<AtomicUsize>,
    has_yielded: bool,
}

impl Stream for BoundedSource {
    type Item = Result<Bytes, OperationError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if mem::take(&mut self.has_yielded) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = ready!(self.content.poll_next_unpin(context));
        if let Some(Ok(piece)) = &next {
            let remaining = self.remaining.load(Ordering::Relaxed);
            if remaining == 0 {
                return Poll::Ready(Some(Err(OperationError::Broken("the head of a part is too long".to_owned()))));
            }
            if remaining != usize::MAX {
                self.remaining.store(remaining.saturating_sub(piece.len()), Ordering::Relaxed);
            }
            self.has_yielded = true;
        }
        Poll::Ready(next)
    }
}

fn boundary(request: &HttpRequest) -> Result<String, ApiError> {
    let refused = || ApiError::new(Code::UnsupportedMediaType, "the body must be multipart/form-data with a boundary");
    let mut values = request.headers().get_all(header::CONTENT_TYPE);
    let (Some(value), None) = (values.next(), values.next()) else { return Err(refused()) };
    if request.headers().contains_key(header::CONTENT_ENCODING) {
        return Err(ApiError::new(Code::UnsupportedMediaType, "the body must not be encoded"));
    }
    let boundary = multer::parse_boundary(value.to_str().map_err(|_| refused())?).map_err(|_| refused())?;
    // RFC 2046 section 5.1.1 limits the length. An empty boundary would match everywhere.
    if (1..=70).contains(&boundary.len()) { Ok(boundary) } else { Err(refused()) }
}

/// Returns the error of the body's source, or a parse error.
fn form_error(error: multer::Error) -> OperationError {
    match error {
        multer::Error::StreamReadFailed(cause) => match cause.downcast::<OperationError>() {
            Ok(error) => *error,
            Err(other) => OperationError::Broken(format!("the form cannot be read: {other}")),
        },
        other => OperationError::Broken(format!("the form cannot be read: {other}")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn pieces(body: &[u8], size: usize) -> ByteStream {
        let pieces: Vec<_> = body.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        futures_util::stream::iter(pieces).boxed()
    }

    pub(crate) async fn form(body: &str, size: usize) -> Result<Form, OperationError> {
        Form::parse(pieces(body.as_bytes(), size), "b".to_owned(), &["files[][file]"]).await
    }

    pub(crate) fn part(name: &str, content: &str) -> String {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
    }

    async fn content(file: File) -> String {
        let bytes: Vec<Bytes> = file.map(|piece| piece.expect("a piece")).collect().await;
        String::from_utf8(bytes.concat()).expect("text")
    }

    #[tokio::test]
    async fn texts_are_read_first_and_files_on_demand() {
        let body = [
            part("files[][dest_path]", "/a"),
            part("files[][dest_path]", "/ü"),
            part("files[][file]", "one\r\n--c"),
            part("files[][file]", ""),
            "--b--\r\n".to_owned(),
        ]
        .concat();
        for size in [1, 7, 1000] {
            let mut form = form(&body, size).await.expect("a form");
            assert_eq!(form.texts("files[][dest_path]"), ["/a", "/ü"]);
            assert!(form.text("files[][dest_path]").is_err(), "a scalar given twice");
            assert_eq!(form.text("x").expect("none"), None);
            assert_eq!(content(form.next_file().await.expect("read").expect("a file")).await, "one\r\n--c");
            assert_eq!(content(form.next_file().await.expect("read").expect("a file")).await, "");
            assert!(form.next_file().await.expect("read").is_none());
        }
    }

    #[tokio::test]
    async fn a_body_without_parts_is_an_empty_form() {
        for body in ["", "--b--\r\n", "--b--"] {
            let mut form = form(body, 3).await.unwrap_or_else(|error| panic!("{body:?}: {error}"));
            assert!(form.texts.is_empty() && !form.has_file(), "{body:?}");
            assert!(form.next_file().await.expect("read").is_none());
        }
    }

    #[tokio::test]
    async fn truncated_and_misordered_forms_are_errors() {
        let whole = [part("x", "1"), part("files[][file]", "content")].concat();
        // A truncated form is never taken for a complete one.
        for cut in 1..whole.len() {
            let read = async {
                let mut form = form(&whole[..cut], 5).await?;
                while let Some(mut file) = form.next_file().await? {
                    while file.next().await.transpose()?.is_some() {}
                }
                Ok::<_, OperationError>(())
            };
            assert!(matches!(read.await, Err(OperationError::Broken(_))), "cut at {cut}");
        }
        let late = [part("files[][file]", "content"), part("x", "1"), "--b--\r\n".to_owned()].concat();
        let mut late = form(&late, 100).await.expect("a form");
        drop(late.next_file().await);
        assert!(matches!(late.next_file().await, Err(OperationError::Broken(_))));
    }

    #[tokio::test]
    async fn heads_texts_and_the_count_of_parts_are_bounded() {
        let head = format!("--b\r\nContent-Disposition: form-data; name=\"{}", "x".repeat(4 << 20));
        assert!(matches!(form(&head, 4096).await, Err(OperationError::Broken(_))));
        let text = part("x", &"y".repeat(MAX_TEXT_BYTES + 1)) + "--b--\r\n";
        assert!(matches!(form(&text, 4096).await, Err(OperationError::TooLarge(_))));
        let many = part("x", "y").repeat(MAX_PARTS + 1) + "--b--\r\n";
        assert!(matches!(form(&many, 4096).await, Err(OperationError::Broken(_))));
    }

    #[tokio::test]
    async fn an_error_of_the_source_is_passed_on() {
        let first = Bytes::from(part("x", "1"));
        let source = futures_util::stream::iter([Ok(first), Err(OperationError::Stalled { seconds: 60 })]).boxed();
        let read = Form::parse(source, "b".to_owned(), &[]).await;
        assert!(matches!(read, Err(OperationError::Stalled { seconds: 60 })));
    }
}
