//! The page that plays a recording.

use actix_web::HttpResponse;

use crate::{
    live_view::embedded,
    request::{RecordingViewer, Request},
};

const PAGE: &str = include_str!("assets/replay.html");
const SCRIPT: &str = include_str!("assets/replay.js");
const STYLE: &str = include_str!("assets/replay.css");

/// `GET /live/{session_id}/replays/{replay_id}`: returns the page, which is the same for every recording and derives
/// the URL of the video from its own URL.
pub(crate) async fn replay_page(_: Request<RecordingViewer>) -> HttpResponse {
    embedded("text/html; charset=utf-8", "no-store", PAGE)
}

/// `GET /live/assets/{name}`: returns the asset, if it exists.
pub(crate) fn asset(name: &str) -> Option<HttpResponse> {
    match name {
        "replay.js" => Some(embedded("text/javascript; charset=utf-8", "no-cache", SCRIPT)),
        "replay.css" => Some(embedded("text/css; charset=utf-8", "no-cache", STYLE)),
        _ => None,
    }
}
