//! Watches of directories.

use casement_domain::fs::Change;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer},
    caller::SessionAccess,
    error::ErrorBody,
    sse,
};

/// The directory to watch.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct StartFsWatch {
    /// Absolute. Required. A directory.
    #[schema(required, nullable = false)]
    path: Option<String>,
    /// With the directories below it, also those that are made later. Default: false.
    recursive: Option<bool>,
}

/// A new watch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FsWatch {
    watch_id: String,
}

/// A change in a watched directory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileSystemEvent {
    /// `CREATE`: it came to be, or was moved there; `WRITE`; `DELETE`; `RENAME`: it was moved away.
    r#type: &'static str,
    /// Absolute.
    path: String,
    name: Option<String>,
    is_dir: bool,
}

impl FileSystemEvent {
    fn new(change: Change) -> Self {
        let name = change.path.rsplit('/').next().map(str::to_owned);
        Self { r#type: change.kind.as_str(), name, is_dir: change.is_dir, path: change.path }
    }
}

/// Begins to watch a directory. Changes are kept from now on until they are read, up to a bound.
#[utoipa::path(
    post, path = "/browsers/{id}/fs/watch", tag = "Files",
    params(("id" = String, Path)), request_body = StartFsWatch,
    responses(
        (status = 201, body = FsWatch),
        (status = 400, description = "The path breaks a rule, or is not a directory", body = ErrorBody),
        (status = 403, description = "The session's user may not read it", body = ErrorBody),
        (status = 404, description = "There is no such session or path", body = ErrorBody),
        (status = 429, description = "The session has 16 watches", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn start_fs_watch(mut inside: SessionAccess) -> Answer {
    let StartFsWatch { path, recursive } = inside.json().await?;
    let id = inside.services().files.watch(&inside.session, path, recursive.unwrap_or(false)).await?;
    let location = format!("/browsers/{}/fs/watch/{}/events", inside.session.id, id.as_str());
    Ok(answer::created(&location, &FsWatch { watch_id: id.as_str().to_owned() }))
}

/// Streams what happens in a watched directory. A later reader takes over from an earlier one. When changes were lost the watch ends;
/// asked for again, it says why.
#[utoipa::path(
    get, path = "/browsers/{id}/fs/watch/{watch_id}/events", tag = "Files",
    params(("id" = String, Path), ("watch_id" = String, Path)),
    responses(
        (status = 200, body = FileSystemEvent, content_type = "text/event-stream"),
        (status = 404, description = "There is no such session or watch, or it has ended", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn stream_fs_events(inside: SessionAccess) -> Answer {
    let (changes, guard) = inside.services().files.changes(&inside.session, &inside.path("watch_id")?).await?;
    Ok(sse::answer(
        inside,
        changes.map(move |change| {
            let _in_use = &guard;
            change.map(FileSystemEvent::new)
        }),
    ))
}

/// Ends a watch.
#[utoipa::path(
    delete, path = "/browsers/{id}/fs/watch/{watch_id}", tag = "Files",
    params(("id" = String, Path), ("watch_id" = String, Path)),
    responses(
        (status = 204, description = "Ended"),
        (status = 404, description = "There is no such session or watch", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn stop_fs_watch(inside: SessionAccess) -> Answer {
    inside.services().files.unwatch(&inside.session, &inside.path("watch_id")?).await?;
    Ok(answer::nothing())
}
