//! The file commands of Selenium Grid, which chromedriver does not have: `se/file` uploads a file for an input of a
//! page, `se/files` lists, reads and deletes what the browser has downloaded.

mod zip;

use actix_web::{HttpResponse, http::Method, http::header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use casement_domain::{
    field::FieldCode,
    fs::{DOWNLOADS, Entry, Files, NewDirectory},
    session::Session,
    session_operation::OperationError,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    error::{ApiError, Code},
    image_response::{ResponseSlot, acquire_file_slot},
};

/// The maximum size of the body of an upload, in bytes: an archive in base 64 inside JSON.
const MAX_UPLOAD_BODY_BYTES: usize = 48 * 1024 * 1024;
/// The maximum size of a file that is read as one message, in bytes.
const MAX_DOWNLOAD_BYTES: u64 = 32 * 1024 * 1024;
/// The maximum number of downloads that are listed.
const MAX_LISTED: usize = 1000;
/// The directory of uploads inside a session.
const UPLOADS: &str = "/home/casement/uploads";
/// The end of the name of a download that still runs.
const UNFINISHED: &str = ".crdownload";

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileCommand {
    Upload,
    List,
    Download,
    DeleteAll,
}

#[derive(Deserialize)]
struct UploadBody {
    /// A ZIP archive of one file, in base 64.
    file: String,
}

#[derive(Deserialize)]
struct DownloadBody {
    name: String,
}

impl FileCommand {
    /// Returns the command of a request; `tail` is its path below the base of the protocol.
    pub(crate) fn of(method: &Method, tail: &str) -> Option<Self> {
        let (_, command) = tail.strip_prefix("session/")?.split_once('/')?;
        match (method.as_str(), command) {
            ("POST", "se/file" | "file") => Some(Self::Upload),
            ("GET", "se/files") => Some(Self::List),
            ("POST", "se/files") => Some(Self::Download),
            ("DELETE", "se/files") => Some(Self::DeleteAll),
            _ => None,
        }
    }

    /// Returns the maximum size of the body, in bytes, if it is larger than that of other commands.
    pub(crate) fn max_body_bytes(self) -> Option<usize> {
        (self == Self::Upload).then_some(MAX_UPLOAD_BODY_BYTES)
    }

    /// Acquires the slot of a command that holds a whole file in memory.
    ///
    /// # Errors
    /// `unavailable`, as [`acquire_file_slot`].
    pub(crate) async fn slot(self, session: &Session) -> Result<Option<ResponseSlot>, ApiError> {
        match self {
            Self::Upload | Self::Download => acquire_file_slot(session).await.map(Some),
            Self::List | Self::DeleteAll => Ok(None),
        }
    }

    /// Runs the command. `id` is new: the name of a directory for an uploaded file.
    ///
    /// # Errors
    /// `bad_request` for the body; the errors of files.
    pub(crate) async fn run(
        self,
        files: &Files,
        session: &Session,
        id: &str,
        body: Bytes,
    ) -> Result<HttpResponse, ApiError> {
        let value = match self {
            Self::Upload => upload(files, session, id, body).await?,
            Self::List => listed(&downloads(files, session).await?),
            Self::Download => download(files, session, read(&body)?).await?,
            Self::DeleteAll => delete_all(files, session).await?,
        };
        let mut response = HttpResponse::Ok();
        response.insert_header((header::CACHE_CONTROL, "no-cache"));
        Ok(response.json(json!({ "value": value })))
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|_| ApiError::new(Code::BadRequest, "the body does not match the parameters of the command"))
}

async fn upload(files: &Files, session: &Session, id: &str, body: Bytes) -> Result<Value, ApiError> {
    let UploadBody { file: mut text } = read(&body)?;
    // The archive is held once more from here on.
    drop(body);
    // Some clients break the lines.
    text.retain(|c| !c.is_ascii_whitespace());
    let archive = STANDARD.decode(text).map_err(|_| ApiError::new(Code::BadRequest, "`file` is not base 64"))?;
    let directory = format!("{UPLOADS}/{id}");
    let parent = NewDirectory::parse(Some(UPLOADS.to_owned()), None).map_err(ApiError::from)?;
    files.make_directory(session, parent).await?;
    let content = stream::iter([Ok(Bytes::from(archive))]).boxed();
    files.unpack(session, Files::unpack_path(Some(directory.clone()), true)?, content).await?;
    let unpacked = entries(files, session, &directory).await?;
    match unpacked.as_slice() {
        [file] if !file.is_dir() => Ok(format!("{directory}/{}", file.name).into()),
        _ => {
            files.delete_directory(session, Some(directory)).await?;
            Err(ApiError::field("file", FieldCode::InvalidFormat, "must be an archive of one file"))
        }
    }
}

/// Returns the entries of a directory, at most [`MAX_LISTED`].
async fn entries(files: &Files, session: &Session, path: &str) -> Result<Vec<Entry>, OperationError> {
    let mut listed = files.list(session, Some(path.to_owned())).await?;
    let mut found = Vec::new();
    while let Some(batch) = listed.entries.try_next().await? {
        found.extend(batch);
        if found.len() >= MAX_LISTED {
            found.truncate(MAX_LISTED);
            break;
        }
    }
    Ok(found)
}

/// Returns the files that the browser has downloaded.
async fn downloads(files: &Files, session: &Session) -> Result<Vec<Entry>, ApiError> {
    let mut found = match entries(files, session, DOWNLOADS).await {
        Err(OperationError::Missing(_)) => Vec::new(),
        found => found?,
    };
    found.retain(|entry| !entry.is_dir() && !entry.name.ends_with(UNFINISHED));
    Ok(found)
}

fn listed(found: &[Entry]) -> Value {
    let names: Vec<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
    let ms = |entry: &Entry| entry.modified_at.unix_timestamp_nanos() / 1_000_000;
    let describe = |entry: &Entry| json!({ "name": entry.name, "size": entry.size_bytes, "lastModifiedTime": i64::try_from(ms(entry)).unwrap_or(0) });
    json!({ "names": names, "files": found.iter().map(describe).collect::<Vec<_>>() })
}

async fn download(files: &Files, session: &Session, DownloadBody { name }: DownloadBody) -> Result<Value, ApiError> {
    if name.contains('/') || matches!(name.as_str(), "" | "." | "..") {
        return Err(ApiError::field("name", FieldCode::InvalidFormat, "must be the name of a download"));
    }
    let path = format!("{DOWNLOADS}/{name}");
    let mut file = files.read(session, Some(path.clone())).await?;
    let too_large = || {
        let message = format!("the file is larger than {MAX_DOWNLOAD_BYTES} bytes: read it with fs/read_file, {path}");
        ApiError::new(Code::PayloadTooLarge, message)
    };
    if file.length.is_some_and(|length| length > MAX_DOWNLOAD_BYTES) {
        return Err(too_large());
    }
    let mut content = BytesMut::new();
    while let Some(piece) = file.bytes.try_next().await? {
        content.extend_from_slice(&piece);
        if content.len() as u64 > MAX_DOWNLOAD_BYTES {
            return Err(too_large());
        }
    }
    let archive = zip::of_file(&name, &content).ok_or_else(too_large)?;
    drop(content);
    Ok(json!({ "filename": name, "contents": STANDARD.encode(archive) }))
}

async fn delete_all(files: &Files, session: &Session) -> Result<Value, ApiError> {
    for entry in downloads(files, session).await? {
        match files.delete_file(session, Some(format!("{DOWNLOADS}/{}", entry.name))).await {
            Ok(()) | Err(OperationError::Missing(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    use casement_domain::{
        ids::ProjectId,
        testing::{session, session_id},
    };
    use futures_util::FutureExt as _;

    use super::*;

    /// Returns a session of a project, by their numbers.
    fn of_project(project: u128, number: u32) -> Session {
        Session { id: session_id(number), project: ProjectId::from_ulid(project.into()), ..session(1) }
    }

    #[tokio::test]
    async fn only_so_many_files_are_in_memory_at_a_time_and_no_project_has_all() {
        let (one, two, other) = (of_project(1, 1), of_project(1, 2), of_project(2, 3));
        let slot = |command: FileCommand, of: &Session| {
            command.slot(of).now_or_never().map(|slot| slot.expect("no time has passed"))
        };
        let mut held: Vec<_> =
            [&one, &one, &two].map(|session| slot(FileCommand::Upload, session).expect("free")).into();
        assert!(slot(FileCommand::Upload, &two).is_none(), "the share of the project");
        held.push(slot(FileCommand::Download, &other).expect("another project has room"));
        assert!(slot(FileCommand::Upload, &other).is_none() && slot(FileCommand::Download, &other).is_none());
        assert!(
            slot(FileCommand::List, &one).is_some() && slot(FileCommand::DeleteAll, &one).is_some(),
            "they hold no file"
        );
        held.pop();
        assert!(slot(FileCommand::Download, &other).is_some_and(|slot| slot.is_some()));
    }
}
