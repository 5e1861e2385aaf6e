//! The handlers of recordings: start, list, stop, download.

use actix_web::{
    HttpResponse,
    http::header::{self, HeaderValue},
};
use serde::Deserialize;

use super::{range, record::ReplayBody};
use crate::{
    answer::{self, Answer},
    error::ApiError,
    request::{ActiveSession, RecordingViewer, Request, SessionCredential, StoredSession},
    schema::{IntoParams, ToSchema},
    stream,
};

/// A recording to start.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = StartReplay)]
pub(crate) struct Start {
    /// Frames per second, 1 to 60; more than 20 need a GPU. Default: 10.
    framerate: Option<i64>,
    /// The time in seconds after which the recording stops automatically, 1 to 21600. Default: 3600.
    max_duration_in_seconds: Option<i64>,
    /// Whether sound is recorded. Default: false.
    record_audio: Option<bool>,
}

/// A video.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "only the OpenAPI document uses it; the video is sent as a file")]
pub(super) struct Mp4(Vec<u8>);

/// The choice of the video to download.
#[derive(Deserialize, IntoParams)]
pub(super) struct DownloadReplayParams {
    /// Whether the incomplete video of a failed recording is downloaded too. Default: false.
    partial: Option<bool>,
}

/// The header that requests a part of the video.
#[derive(IntoParams)]
#[expect(dead_code, reason = "it is in the OpenAPI document only")]
pub(super) struct RangeHeader {
    /// One range of bytes.
    #[param(rename = "Range")]
    range: Option<String>,
}

pub(crate) async fn start_replay(mut request: Request<ActiveSession>) -> Answer {
    let Start { framerate, max_duration_in_seconds, record_audio } = request.json().await?;
    let (replays, with_audio) = (&request.services().replays, record_audio == Some(true));
    let replay = replays.start(request.session(), framerate, max_duration_in_seconds, with_audio).await?;
    let location = format!("/browsers/{}/replays/{}", request.session().id, replay.id);
    Ok(answer::created(&location, &ReplayBody::new(request.api(), request.session(), replay)))
}

pub(crate) async fn list_replays(request: Request<StoredSession>) -> Answer {
    let replays = request.services().replays.list(request.session()).await?;
    let body = |replay| ReplayBody::new(request.api(), request.session(), replay);
    Ok(HttpResponse::Ok().json(replays.into_iter().map(body).collect::<Vec<_>>()))
}

pub(crate) async fn stop_replay(request: Request<StoredSession>) -> Answer {
    request.services().replays.stop(request.session(), &request.path("replay_id")?).await?;
    Ok(answer::nothing())
}

pub(crate) async fn download_replay(request: Request<StoredSession>) -> Answer {
    video(request).await
}

/// `GET /live/{session_id}/replays/{replay_id}/film`: returns the video, for any token of the session.
pub(crate) async fn watched_video(request: Request<RecordingViewer>) -> Answer {
    video(request).await
}

async fn video<C: SessionCredential>(request: Request<C>) -> Answer {
    let which = request.path("replay_id")?;
    let also_failed = request.query::<DownloadReplayParams>()?.partial.unwrap_or(false);
    // A stored video never changes, so its id is its entity tag.
    let tag = format!("\"{}\"", which.to_ascii_lowercase());
    let part = range::requested_part(request.http().headers(), &tag);
    let video = request.services().replays.video(request.session(), &which, part, also_failed).await?;
    let mut response = match video.part {
        Some((first, last)) => {
            let mut response = HttpResponse::PartialContent();
            response
                .insert_header((header::CONTENT_RANGE, format!("bytes {first}-{last}/{}", video.replay.size_bytes)));
            response
        }
        None => HttpResponse::Ok(),
    };
    let name = format!("attachment; filename=\"replay-{}.mp4\"", video.replay.id);
    response
        .content_type("video/mp4")
        .insert_header((header::ACCEPT_RANGES, "bytes"))
        .insert_header((header::ETAG, HeaderValue::from_str(&tag).map_err(ApiError::internal)?))
        .insert_header((header::CONTENT_DISPOSITION, name))
        .no_chunking(video.length);
    Ok(stream::answer(response, request, video.bytes))
}
