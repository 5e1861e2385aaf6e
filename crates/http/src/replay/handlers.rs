//! Start, list, stop, download.

use actix_web::{
    HttpResponse,
    http::header::{self, HeaderValue},
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{range, record::ReplayBody};
use crate::{
    answer::{self, Answer},
    caller::{EndedSessionAccess, EndedSessionViewer, SessionAccess},
    error::{ApiError, ErrorBody},
    stream,
};

/// How to record.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = StartReplay)]
pub(crate) struct Start {
    /// Frames per second, 1 to 60; more than 20 need a graphics card. Default: 10.
    framerate: Option<i64>,
    /// After how many seconds it stops by itself, 1 to 21600. Default: 3600.
    max_duration_in_seconds: Option<i64>,
    /// With sound. Default: false.
    record_audio: Option<bool>,
}

/// A film.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it stands in the description only; the film is sent as it is")]
struct Mp4(Vec<u8>);

/// Begins to record what a session shows.
#[utoipa::path(
    post, path = "/browsers/{id}/replays", tag = "Replays", request_body = Start,
    params(("id" = String, Path)),
    responses(
        (status = 201, body = ReplayBody),
        (status = 400, description = "A field breaks a rule, or needs what no session here has", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = 409, description = "A recording is running", body = ErrorBody),
        (status = 429, description = "The session keeps as many recordings as it may, or has no disk space for one", body = ErrorBody),
        (status = "5XX", description = "The recording could not begin", body = ErrorBody),
    )
)]
pub(crate) async fn start_replay(mut inside: SessionAccess) -> Answer {
    let Start { framerate, max_duration_in_seconds, record_audio } = inside.json().await?;
    let (replays, with_audio) = (&inside.services().replays, record_audio == Some(true));
    let replay = replays.start(&inside.session, framerate, max_duration_in_seconds, with_audio).await?;
    let location = format!("/browsers/{}/replays/{}", inside.session.id, replay.id);
    Ok(answer::created(&location, &ReplayBody::new(inside.api(), &inside.session, replay)))
}

/// Lists the recordings of a session, oldest first; of one that has ended, too, for a while.
#[utoipa::path(
    get, path = "/browsers/{id}/replays", tag = "Replays",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = [ReplayBody]),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn list_replays(EndedSessionAccess(inside): EndedSessionAccess) -> Answer {
    let replays = inside.services().replays.list(&inside.session).await?;
    let body = |replay| ReplayBody::new(inside.api(), &inside.session, replay);
    Ok(HttpResponse::Ok().json(replays.into_iter().map(body).collect::<Vec<_>>()))
}

/// Stops a recording and makes its film. One that has ended already stays as it is.
#[utoipa::path(
    post, path = "/browsers/{id}/replays/{replay_id}/stop", tag = "Replays",
    params(("id" = String, Path), ("replay_id" = String, Path)),
    responses(
        (status = 204, description = "Stopped"),
        (status = 404, description = "There is no such recording", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn stop_replay(EndedSessionAccess(inside): EndedSessionAccess) -> Answer {
    inside.services().replays.stop(&inside.session, &inside.path("replay_id")?).await?;
    Ok(answer::nothing())
}

/// Downloads the film of a recording that has ended: H.264 in MP4. It is kept for a while after the session's end.
#[utoipa::path(
    get, path = "/browsers/{id}/replays/{replay_id}", tag = "Replays",
    params(
        ("id" = String, Path), ("replay_id" = String, Path),
        ("partial" = Option<bool>, Query, description = "Of one that failed, what could be saved; default: false"),
        ("Range" = Option<String>, Header, description = "One part, in bytes"),
    ),
    responses(
        (status = 200, description = "All of it", body = inline(Mp4), content_type = "video/mp4"),
        (status = 206, description = "The part that was asked for", body = inline(Mp4), content_type = "video/mp4"),
        (status = 404, description = "There is no such recording", body = ErrorBody),
        (status = 409, description = "It is running or being stored, it failed, or its film was damaged", body = ErrorBody),
        (status = 416, description = "The part lies outside of the film", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn download_replay(EndedSessionAccess(inside): EndedSessionAccess) -> Answer {
    video(inside).await
}

/// `GET /live/{session_id}/replays/{replay_id}/video`: the same for whoever may watch.
pub(crate) async fn watched_film(EndedSessionViewer(inside): EndedSessionViewer) -> Answer {
    video(inside).await
}

async fn video(inside: SessionAccess) -> Answer {
    let which = inside.path("replay_id")?;
    let also_failed = inside.query()?.boolean("partial")?.unwrap_or(false);
    // A film never changes once it is there, so its name is its tag.
    let tag = format!("\"{}\"", which.to_ascii_lowercase());
    let part = range::wanted(inside.request.headers(), &tag);
    let video = inside.services().replays.video(&inside.session, &which, part, also_failed).await?;
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
    Ok(stream::answer(response, inside, video.bytes))
}
