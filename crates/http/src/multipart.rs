//! Multipart forms: texts, which are in memory, and files, which are streamed. Their parts may have any order.
//!
//! The parser reads from its source until it is pending and does not bound the head of a part. So the source here
//! yields one chunk per poll, and limits the bytes while a head is read.

use std::{
    collections::BTreeSet,
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
use casement_domain::{
    field::{FieldCode, Fields, InvalidInput, InvalidValue},
    session_operation::{ByteStream, OperationError},
};
use futures_util::{Stream, StreamExt as _, stream};
use multer::{Field, Multipart};

use crate::{
    body::{self, BodyEnd},
    error::{ApiError, Code},
    spool::Spool,
};

/// The maximum number of parts of one form.
const MAX_PARTS: usize = 1000;
/// The maximum size of all texts of one form together, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// The maximum number of bytes that are read from the source for the head of one part. The last chunk may exceed it.
const MAX_HEAD_BYTES: usize = 256 << 10;

/// The maximum number of items of a list whose parts have indices.
const MAX_ITEMS: usize = 100;

/// A form, with its texts in memory and its files as streams.
pub(crate) struct Form {
    /// The texts that are read: those before the file that was returned last.
    texts: Vec<(String, String)>,
    /// The bytes that further texts may have.
    remaining_text_bytes: usize,
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

/// A part of a form.
pub(crate) enum Part {
    Text { name: String, value: String },
    File(Box<File>),
}

/// A file part. Its file name and its media type are ignored.
pub(crate) struct File {
    /// The name of the part in the form.
    pub(crate) name: String,
    field: Field<'static>,
}

impl Form {
    /// Reads the texts of a form of at most `max_bytes` bytes, up to the first file. A file is a part whose name is in
    /// `files`, where `list[][…]` is also the name of `list[0][…]`. An empty body is an empty form.
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
        let parts = Parts { multipart, remaining, count: 0, file_names };
        let mut form =
            Self { texts: Vec::new(), remaining_text_bytes: MAX_TEXT_BYTES, parts, first_file: None, body_end: None };
        form.first_file = form.next_file().await?;
        Ok(form)
    }

    /// Returns the text of that name.
    ///
    /// # Errors
    /// `bad_request` if two parts have that name.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, OperationError> {
        let mut found = self.texts.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        match (found.next(), found.next()) {
            (first, None) => Ok(first),
            _ => Err(given_twice(name)),
        }
    }

    /// Returns the names and values of all texts that are read, in order.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the distinct keys in the first brackets of the names `name[…]`.
    pub(crate) fn names_in<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let inner =
            move |key: &'a str| key.strip_prefix(name)?.strip_prefix('[')?.split_once(']').map(|(inner, _)| inner);
        let found: BTreeSet<&str> = self.texts.iter().filter_map(|(key, _)| inner(key)).collect();
        found.into_iter()
    }

    /// Returns whether the form has a file.
    pub(crate) fn has_file(&self) -> bool {
        self.first_file.is_some()
    }

    /// Returns the content of the only file; `None` if the form has none. The stream ends after the rest of the form was
    /// read, and with an error if that is invalid, has another file or repeats a text.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) async fn only_file(mut self, name: &'static str) -> Result<Option<ByteStream>, OperationError> {
        let Some(file) = self.next_file().await? else { return Ok(None) };
        let rest = stream::once(async move {
            match self.finish(name).await {
                Ok(()) => None,
                Err(error) => Some(Err(error)),
            }
        });
        Ok(Some(file.chain(rest.filter_map(std::future::ready)).boxed()))
    }

    /// Stores the only file in `spool` and reads the rest of the form, so that all its texts are known. Returns the
    /// content of the file; `None` if the form has none.
    ///
    /// # Errors
    /// The body is malformed or has another file; the spool has no room.
    pub(crate) async fn spool_only_file(
        &mut self,
        name: &str,
        spool: &Spool,
    ) -> Result<Option<ByteStream>, OperationError> {
        let Some(file) = self.next_file().await? else { return Ok(None) };
        let content = spool.for_form().store(name, file.boxed()).await?;
        self.finish(name).await?;
        Ok(Some(content))
    }

    /// Reads the rest of a form whose only file, `file`, was read.
    ///
    /// # Errors
    /// The body is malformed, has another file or repeats a text.
    pub(crate) async fn finish(&mut self, file: &str) -> Result<(), OperationError> {
        let known = self.texts.len();
        if self.next_file().await?.is_some() {
            return Err(given_twice(file));
        }
        let (before, late) = self.texts.split_at(known);
        match late.iter().find(|(name, _)| before.iter().any(|(known, _)| known == name)) {
            Some((name, _)) => Err(given_twice(name)),
            None => Ok(()),
        }
    }

    /// Returns the next file, after the texts before it were read. The previous file must have been read to its end or
    /// dropped.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) async fn next_file(&mut self) -> Result<Option<File>, OperationError> {
        loop {
            match self.next_part().await? {
                None => return Ok(None),
                Some(Part::File(file)) => return Ok(Some(*file)),
                Some(Part::Text { name, value }) => self.texts.push((name, value)),
            }
        }
    }

    /// Returns the next part: the first file, then all parts after it. The previous file must have been read to its end
    /// or dropped.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) async fn next_part(&mut self) -> Result<Option<Part>, OperationError> {
        if let Some(file) = self.first_file.take() {
            return Ok(Some(Part::File(Box::new(file))));
        }
        let Some(part) = self.parts.next().await? else { return Ok(None) };
        if self.parts.is_file(&part.name) {
            return Ok(Some(Part::File(Box::new(part))));
        }
        let (name, value) = part.text(&mut self.remaining_text_bytes).await?;
        Ok(Some(Part::Text { name, value }))
    }
}

fn given_twice(part: &str) -> OperationError {
    OperationError::Broken(format!("the form's part {part} is given twice"))
}

/// The items of a list whose members are parts of a form: `list[][member]`, where the n-th part of a member belongs to
/// the n-th item, or `list[0][member]` with the index of the item.
pub(crate) struct Items {
    list: &'static str,
    /// Whether the parts have indices; `None` before the first part.
    has_indices: Option<bool>,
    found: BTreeSet<(String, usize)>,
}

impl Items {
    pub(crate) fn new(list: &'static str) -> Self {
        Self { list, has_indices: None, found: BTreeSet::new() }
    }

    /// Returns the member and the item of the next part; `None` if the part does not belong to the list.
    ///
    /// # Errors
    /// `bad_request` with the name of a part that is given twice, has an index of more than two digits, or has an index
    /// where others have none.
    pub(crate) fn place<'a>(&mut self, part: &'a str) -> Result<Option<(&'a str, usize)>, OperationError> {
        let Some((index, member)) = item(self.list, part) else { return Ok(None) };
        let has_index = !index.is_empty();
        if *self.has_indices.get_or_insert(has_index) != has_index {
            let why = format!("either all parts of {} have an index or none", self.list);
            return Err(OperationError::Broken(format!("the form's part {part}: {why}")));
        }
        let item = match has_index {
            true => index.parse().unwrap_or(usize::MAX),
            false => self.found.iter().filter(|(known, _)| known == member).count(),
        };
        if has_index && (item >= MAX_ITEMS || item.to_string() != index) {
            let why = format!("the index must be a number from 0 to {}", MAX_ITEMS - 1);
            return Err(OperationError::Broken(format!("the form's part {part}: {why}")));
        }
        match self.found.insert((member.to_owned(), item)) {
            true => Ok(Some((member, item))),
            false => Err(given_twice(part)),
        }
    }

    /// Checks that every item up to the last one has all `members`.
    ///
    /// # Errors
    /// Every member that an item lacks.
    pub(crate) fn check_complete(&self, members: &[&str]) -> Result<(), InvalidInput> {
        let mut fields = Fields::new();
        let items = self.found.iter().map(|(_, item)| item + 1).max().unwrap_or(0);
        for (item, member) in (0..items).flat_map(|item| members.iter().map(move |member| (item, *member))) {
            if !self.found.contains(&(member.to_owned(), item)) {
                let bad = InvalidValue::new(FieldCode::Required, "is required");
                fields.refuse(&format!("{}[{item}].{member}", self.list), bad);
            }
        }
        fields.finish()
    }
}

/// Splits `list[index][member]` into the index, which may be empty, and the member.
fn item<'a>(list: &str, part: &'a str) -> Option<(&'a str, &'a str)> {
    let (index, member) = part.strip_prefix(list)?.strip_prefix('[')?.split_once("][")?;
    Some((index, member.strip_suffix(']')?))
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

    fn is_file(&self, name: &str) -> bool {
        let is_same = |file: &String| match file.split_once("[]") {
            None => file == name,
            Some((list, member)) => item(list, name).is_some_and(|(_, of)| member.get(1..member.len() - 1) == Some(of)),
        };
        self.file_names.iter().any(is_same)
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
#[path = "multipart_tests.rs"]
pub(crate) mod tests;
