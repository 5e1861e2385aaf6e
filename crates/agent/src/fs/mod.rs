//! The session's files, with the rights of the session's user.
//!
//! Blocking work is done in pieces on threads for it, so that no thread waits for a slow caller.

mod change;
mod draft;
mod fault;
mod look;
mod names;
mod path;
mod receive;
#[cfg(test)]
mod tests;
mod watch;
mod zip;

use std::sync::Arc;

use futures_util::StreamExt as _;
use http::request::Parts;
use http::{HeaderValue, header};
use hyper::body::Incoming;

use self::look::{Content, Listing};
pub(crate) use self::look::{Make, pieces};
pub(crate) use self::names::{Found, Walk};
use self::receive::blocking;
pub(crate) use self::watch::Watches;
use self::zip::pack::Archive;
use crate::reply::{self, Answer, Refusal, arguments, empty, ok, read};
use casement_agent_protocol::fs::{
    DELETE_DIRECTORY, DELETE_FILE, INFO, LIST, MAKE_DIRECTORY, MOVE, PERMISSIONS, Path, READ, UNWATCH, UNZIP, UPLOAD,
    WATCH, WATCH_EVENTS, WRITE, WatchId, ZIP,
};

const BYTES: &str = "application/octet-stream";
const LINES: &str = "application/x-ndjson";

/// Serves `/v1/fs/…`.
pub(crate) async fn serve(watches: &Arc<Watches>, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        LIST => {
            let Path { path } = read(body).await?;
            let listing = blocking(move || Listing::of(&path)).await?;
            Ok(reply::stream(LINES, pieces(listing)))
        }
        INFO => {
            let Path { path } = read(body).await?;
            ok(&blocking(move || look::info(&path)).await?)
        }
        READ => {
            let Path { path } = read(body).await?;
            let content = blocking(move || Content::of(&path)).await?;
            let length = content.length();
            let mut response = reply::stream(BYTES, pieces(content));
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            Ok(response)
        }
        ZIP => {
            let Path { path } = read(body).await?;
            let archive = blocking(move || Archive::of(&path)).await?;
            Ok(reply::stream(BYTES, pieces(archive)))
        }
        WATCH => {
            let watch_id = watches.start(read(body).await?).await?;
            ok(&WatchId { watch_id })
        }
        WATCH_EVENTS => {
            let WatchId { watch_id } = read(body).await?;
            Ok(reply::stream(LINES, watches.read(&watch_id).await?.boxed()))
        }
        UNWATCH => {
            let WatchId { watch_id } = read(body).await?;
            watches.stop(&watch_id)?;
            Ok(empty())
        }
        _ => change(head, body).await,
    }
}

/// Serves the operations that change files. Their responses contain no value.
async fn change(head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        WRITE => receive::write(arguments(head)?, body).await?,
        UPLOAD => receive::upload(body).await?,
        UNZIP => {
            let Path { path } = arguments(head)?;
            receive::unzip(path, body).await?;
        }
        MAKE_DIRECTORY => {
            let requested = read(body).await?;
            blocking(move || change::make_directory(&requested)).await?;
        }
        DELETE_DIRECTORY => {
            let Path { path } = read(body).await?;
            blocking(move || change::delete_directory(&path)).await?;
        }
        DELETE_FILE => {
            let Path { path } = read(body).await?;
            blocking(move || change::delete_file(&path)).await?;
        }
        MOVE => {
            let requested = read(body).await?;
            blocking(move || change::relocate(&requested)).await?;
        }
        PERMISSIONS => {
            let requested = read(body).await?;
            blocking(move || change::permissions(&requested)).await?;
        }
        other => return Err(Refusal::no_operation(other)),
    }
    Ok(empty())
}
