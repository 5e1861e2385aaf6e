//! The handlers of watches of directories.

use casement_domain::fs::Change;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use crate::{
    answer::{self, Answer},
    request::{ActiveSession, Request},
    schema::ToSchema,
    sse,
};

/// The directory to watch.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct StartFsWatch {
    /// The absolute path of a directory. Required.
    #[schema(required, nullable = false)]
    path: Option<String>,
    /// Whether the directories below are watched too, including those that are created later. Default: false.
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
    /// `CREATE`: created, or moved to this path; `WRITE`; `DELETE`; `RENAME`: moved away from this path.
    r#type: &'static str,
    /// The absolute path.
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

pub(crate) async fn start_fs_watch(mut request: Request<ActiveSession>) -> Answer {
    let StartFsWatch { path, recursive } = request.json().await?;
    let id = request.services().files.watch(request.session(), path, recursive.unwrap_or(false)).await?;
    let location = format!("/browsers/{}/fs/watch/{}/events", request.session().id, id.as_str());
    Ok(answer::created(&location, &FsWatch { watch_id: id.as_str().to_owned() }))
}

pub(crate) async fn stream_fs_events(request: Request<ActiveSession>) -> Answer {
    let (changes, guard) = request.services().files.changes(request.session(), &request.path("watch_id")?).await?;
    Ok(sse::answer(
        request,
        changes.map(move |change| {
            let _in_use = &guard;
            change.map(FileSystemEvent::new)
        }),
    ))
}

pub(crate) async fn stop_fs_watch(request: Request<ActiveSession>) -> Answer {
    request.services().files.unwatch(request.session(), &request.path("watch_id")?).await?;
    Ok(answer::nothing())
}
