//! The routes `…/replays`, and the page of a recording.

use bytes::Bytes;
use casement_domain::{
    ReplayId,
    replay::{NewReplay, Replay, ReplayState},
    session::{EndReason, IdOrName, Session, SessionState},
    session_operation::{ByteStream, OperationError},
    testing::{NOON, browser_id, project_id, session, session_id},
};
use casement_http::Permission;
use futures_util::{StreamExt as _, stream};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::support::{Key, Ports, TestApi};

const VIDEO: &[u8] = b"0123456789";

fn id(n: u128) -> ReplayId {
    ReplayId::from_ulid(ulid::Ulid::from_parts(7, n))
}

fn replay(n: u128, state: ReplayState) -> Replay {
    let over = state != ReplayState::Running;
    Replay {
        id: id(n),
        started_at: NOON,
        finished_at: over.then_some(NOON),
        state,
        size_bytes: if n == 4 { 0 } else { VIDEO.len() as u64 },
        detail: (state == ReplayState::Failed).then(|| "ffmpeg was killed".to_owned()),
    }
}

/// Returns ports with four recordings: complete, running, failed, and failed without data.
fn ports() -> Ports {
    let mut ports = Ports::of_first_session();
    ports.replays.expect_list().returning(|browser| {
        assert_eq!(browser, browser_id(1));
        let states = [ReplayState::Finished, ReplayState::Running, ReplayState::Failed, ReplayState::Failed];
        Ok((1..).zip(states).map(|(n, state)| replay(n, state)).collect())
    });
    ports.replays.expect_read().returning(|_, _, offset, length| Ok(part(offset, length)));
    ports
}

fn part(offset: u64, length: u64) -> ByteStream {
    let (offset, length) = (usize::try_from(offset).unwrap(), usize::try_from(length).unwrap());
    let parts: Vec<_> = VIDEO[offset..offset + length].chunks(4).map(|part| Ok(Bytes::from_static(part))).collect();
    stream::iter(parts).boxed()
}

/// Returns ports with the same recordings of an ended session, whose browser must not be called.
fn stored_ports() -> Ports {
    let ended = || Session { state: SessionState::Ended(EndReason::Deleted), ended_at: Some(NOON), ..session(1) };
    let mut ports = Ports::default();
    ports.sessions.expect_find().returning(move |wanted| Ok((wanted == session_id(1)).then(ended)));
    ports.sessions.expect_find_in_project().returning(move |project, which, include_ended| {
        let ours = include_ended && project == project_id() && *which == IdOrName::Id(session_id(1));
        Ok(ours.then(ended))
    });
    ports.stored_replays.expect_of_session().withf(|id| *id == session_id(1)).returning(|_| {
        let states = [ReplayState::Finished, ReplayState::Running, ReplayState::Failed, ReplayState::Failed];
        Ok((1..).zip(states).map(|(n, state)| replay(n, state)).collect())
    });
    ports.videos.expect_get_part().returning(|key, offset, length| {
        let there = [1, 3].iter().any(|n| key == format!("replays/{}/{}", session_id(1), id(*n)));
        Ok(there.then(|| part(offset, length)))
    });
    ports
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_recordings_is_no_use_of_the_session() {
    let api = TestApi::start(ports());
    api.sessions.activity().watch(&session(1));
    let path = format!("/browsers/{}/replays", session_id(1));
    for path in [path.clone(), format!("{path}/{}", id(1))] {
        assert_eq!(api.get(&path).await.status, 200);
    }
    assert!(api.sessions.activity().take_back(&session(1)), "a session without use can be taken back");
}

#[tokio::test(flavor = "multi_thread")]
async fn recordings_of_an_ended_session_stay_readable_to_the_same_callers() {
    let api = TestApi::start(stored_ports());
    let listed = api.get(&base()).await.json();
    let states: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["status"].clone()).collect();
    assert_eq!(states, ["finished", "running", "failed", "failed"]);
    let path = format!("{}/{}", base(), id(1));
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let whole = api.get(&path).await;
    assert_eq!((whole.status, whole.body.as_slice()), (200, VIDEO));
    let some = api.request("GET", &path, &[&key, "Range: bytes=2-5"], "").await;
    assert_eq!((some.status, some.header("content-range"), some.text().as_str()), (206, Some("bytes 2-5/10"), "2345"));
    for (n, word) in [(2, "being stored"), (3, "partial=true"), (4, "nothing of it could be saved")] {
        let reply = api.get(&format!("{}/{}", base(), id(n))).await;
        assert_eq!((reply.status, reply.code().as_str()), (409, "invalid_state"));
        assert!(reply.text().contains(word), "{reply}");
    }
    assert_eq!(api.get(&format!("{}/{}?partial=true", base(), id(3))).await.body, VIDEO);
    assert_eq!(api.post(&format!("{}/{}/stop", base(), id(1)), "").await.status, 204);
    assert_eq!(api.post(&base(), "").await.status, 404, "nothing begins in a session that has ended");
    // The same, with a key under `/vm`.
    let direct = format!("/vm/{}/replays", session_id(1));
    assert_eq!(api.request("GET", &direct, &[&key], "").await.status, 200);
    assert_eq!(
        api.request("GET", &format!("/vm/{}/fs/list_files?path=/", session_id(1)), &[&key], "").await.status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn recordings_of_an_ended_session_are_hidden_from_other_callers() {
    let api = TestApi::start(stored_ports());
    let stranger = format!("Authorization: Bearer {}", Key::OtherProject.text());
    for path in [base(), format!("{}/{}", base(), id(1))] {
        assert_eq!(api.request("GET", &path, &[&stranger], "").await.status, 404, "{path}");
        assert_eq!(api.request("GET", &path, &[], "").await.status, 401, "{path}");
    }
    // A token with full access ends with its session; a view token only plays recordings.
    let (drive, view) = (api.token(session_id(1), Permission::Drive), api.token(session_id(1), Permission::View));
    let live = format!("/live/{}", session_id(1));
    for (path, status) in [
        (format!("/vm/{}/replays?jwt={drive}", session_id(1)), 404),
        (format!("{live}/replays/{}?jwt={drive}", id(1)), 404),
        (format!("{live}/replays/{}?jwt={view}", id(1)), 200),
        (format!("{live}/replays/{}/film?jwt={view}", id(1)), 200),
        (format!("{live}/replays/{}/film?jwt={view}", id(9)), 404),
        (format!("{live}?jwt={view}"), 404),
    ] {
        assert_eq!(api.request("GET", &path, &[], "").await.status, status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_that_fails_to_start_leaves_no_row_and_none_starts_during_an_end() {
    let mut ports = ports();
    ports.stored_replays.expect_begin().returning(|_, _, _| Ok(true));
    ports.stored_replays.expect_forget().times(1).returning(|_| Ok(()));
    ports.replays.expect_start().times(1).returning(|_, _| Err(OperationError::Failed("no picture".to_owned())));
    assert_eq!(TestApi::start(ports).post(&base(), "").await.status, 500);
    let mut ports = self::ports();
    ports.stored_replays.expect_begin().returning(|_, _, _| Ok(false));
    assert_eq!(TestApi::start(ports).post(&base(), "").await.status, 404);
}

fn base() -> String {
    format!("/browsers/{}/replays", session_id(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_starts_with_the_requested_options_and_returns_its_page_url() {
    let mut ports = ports();
    ports.stored_replays.expect_begin().times(1).returning(|session, _, at| {
        assert_eq!((session, at), (session_id(1), NOON));
        Ok(true)
    });
    ports.replays.expect_start().times(1).returning(|browser, new| {
        let expected = NewReplay { id: new.id, framerate: 5, max_duration_seconds: 60 };
        assert_eq!((browser, new), (browser_id(1), expected));
        Ok(replay(1, ReplayState::Running))
    });
    let api = TestApi::start(ports);
    let reply =
        api.post(&base(), json!({ "framerate": 5, "max_duration_in_seconds": 60, "record_audio": false })).await;
    assert_eq!(reply.status, 201, "{reply}");
    let body = reply.json();
    let token = api.token(session_id(1), Permission::View);
    let page = format!("https://casement.test/live/{}/replays/{}?jwt={token}", session_id(1), id(1));
    let wanted = json!({
        "replay_id": id(1).to_string(), "started_at": "2026-12-01T12:00:00.000000Z", "status": "running",
        "size_bytes": 10, "replay_view_url": page,
    });
    assert_eq!(body, wanted);
    assert_eq!(reply.header("location"), Some(format!("{}/{}", base(), id(1)).as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_an_audit_intent_is_refused_before_anything_is_done() {
    let api = TestApi::start(ports());
    let reply = api.post(&base(), json!({ "framerate": 0, "max_duration_in_seconds": 21_601 })).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"));
    let details = [
        "out_of_range: framerate: must be from 1 to 60",
        "out_of_range: max_duration_in_seconds: must be from 1 to 21600",
    ];
    assert_eq!(reply.details(), details);
    for unsupported in [json!({ "framerate": 21 }), json!({ "record_audio": true })] {
        let reply = api.post(&base(), unsupported).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "not_supported"));
    }
    assert_eq!(api.post(&base(), json!({ "framerate": "10" })).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_recording_states_its_reason() {
    for (refusal, status, code) in [
        (OperationError::State("one is running".to_owned()), 409, "invalid_state"),
        (OperationError::Limit("too many".to_owned()), 429, "limit_exceeded"),
        (OperationError::DiskFull("no room".to_owned()), 429, "limit_exceeded"),
        (OperationError::NotSupported("no ffmpeg".to_owned()), 400, "not_supported"),
        (OperationError::Failed("it could not begin".to_owned()), 500, "internal"),
    ] {
        let mut ports = ports();
        let mut refusal = Some(refusal);
        ports.stored_replays.expect_begin().returning(|_, _, _| Ok(true));
        ports.stored_replays.expect_forget().times(1).returning(|_| Ok(()));
        ports.replays.expect_start().times(1).returning(move |_, _| Err(refusal.take().unwrap()));
        let reply = TestApi::start(ports).post(&base(), "").await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recordings_are_listed_and_stopped() {
    let mut ports = ports();
    ports
        .replays
        .expect_stop()
        .times(2)
        .returning(|_, which| Ok(Replay { id: which, ..replay(1, ReplayState::Finished) }));
    let api = TestApi::start(ports);
    let listed = api.get(&base()).await;
    let states: Vec<_> = listed.json().as_array().unwrap().iter().map(|one| one["status"].clone()).collect();
    assert_eq!(states, ["finished", "running", "failed", "failed"]);
    assert_eq!(listed.json()[2]["detail"], "ffmpeg was killed");
    assert_eq!(listed.header("x-has-more"), None);
    assert_eq!(api.post(&format!("{}/{}/stop", base(), id(2)), "").await.status, 204);
    let token = api.token(session_id(1), Permission::Drive);
    let direct = format!("/vm/{}/replays/{}/stop?jwt={token}", session_id(1), id(2));
    assert_eq!(api.request("POST", &direct, &[], "").await.status, 204);
    assert_eq!(api.post(&format!("{}/nothing/stop", base()), "").await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_video_is_returned_whole_or_in_part() {
    let api = TestApi::start(ports());
    let path = format!("{}/{}", base(), id(1));
    let whole = api.get(&path).await;
    assert_eq!((whole.status, whole.body.as_slice()), (200, VIDEO));
    let name = format!("attachment; filename=\"replay-{}.mp4\"", id(1));
    for (header, value) in [
        ("content-type", "video/mp4"),
        ("content-length", "10"),
        ("accept-ranges", "bytes"),
        ("content-disposition", name.as_str()),
    ] {
        assert_eq!(whole.header(header), Some(value), "{header}");
    }
    let key = format!("Authorization: Bearer {}", super::support::Key::Organization.text());
    for (range, status, part, body) in [
        ("bytes=2-5", 206, Some("bytes 2-5/10"), "2345"),
        ("bytes=7-", 206, Some("bytes 7-9/10"), "789"),
        ("bytes=-3", 206, Some("bytes 7-9/10"), "789"),
        ("bytes=8-99", 206, Some("bytes 8-9/10"), "89"),
        ("bytes=0-1,3-4", 200, None, "0123456789"),
    ] {
        let reply = api.request("GET", &path, &[&key, &format!("Range: {range}")], "").await;
        assert_eq!(
            (reply.status, reply.header("content-range"), reply.text().as_str()),
            (status, part, body),
            "{range}"
        );
    }
    for range in ["bytes=10-", "bytes=99-100", "bytes=-0"] {
        let reply = api.request("GET", &path, &[&key, &format!("Range: {range}")], "").await;
        assert_eq!((reply.status, reply.code().as_str()), (416, "invalid_input"), "{range}");
        assert_eq!(reply.header("content-range"), Some("bytes */10"), "{range}");
        let detail = "out_of_range: Range: the range lies outside of the 10 bytes that there are";
        assert_eq!(reply.details(), [detail], "{range}");
    }
    let stale = ["Range: bytes=2-5", "If-Range: \"another\""];
    assert_eq!(api.request("GET", &path, &[&key, stale[0], stale[1]], "").await.status, 200);
    assert_eq!(api.call("HEAD", &path, "").await.header("content-length"), Some("10"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_recording_is_never_taken_for_a_complete_one() {
    let api = TestApi::start(ports());
    for (n, word) in [(2, "running"), (3, "partial=true"), (4, "nothing of it could be saved")] {
        let reply = api.get(&format!("{}/{}", base(), id(n))).await;
        assert_eq!((reply.status, reply.code().as_str()), (409, "invalid_state"));
        assert!(reply.text().contains(word), "{reply}");
    }
    assert_eq!(api.get(&format!("{}/{}?partial=true", base(), id(3))).await.body, VIDEO);
    assert_eq!(api.get(&format!("{}/{}?partial=true", base(), id(4))).await.status, 409);
    assert_eq!(api.get(&format!("{}/{}?partial=maybe", base(), id(3))).await.status, 400);
    for unknown in [id(9).to_string(), "x".to_owned(), "..%2f".to_owned()] {
        assert_eq!(api.get(&format!("{}/{unknown}", base())).await.code(), "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_token_plays_recordings_and_nothing_else() {
    let api = TestApi::start(ports());
    let token = api.token(session_id(1), Permission::View);
    let live = format!("/live/{}/replays/{}", session_id(1), id(1));
    let page = api.request("GET", &format!("{live}?jwt={token}"), &[], "").await;
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("media-src 'self'") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.text().contains(&token));
    let video = api.request("GET", &format!("{live}/film?jwt={token}"), &["Range: bytes=0-0"], "").await;
    assert_eq!((video.status, video.text().as_str()), (206, "0"));
    for name in ["replay.js", "replay.css"] {
        assert_eq!(api.request("GET", &format!("/live/assets/{name}"), &[], "").await.status, 200);
    }
    for (path, status) in [
        (format!("{live}/film"), 401),
        (live.clone(), 401),
        (format!("/vm/{}/replays/{}?jwt={token}", session_id(1), id(1)), 403),
        (format!("/vm/{}/replays?jwt={token}", session_id(1)), 403),
    ] {
        assert_eq!(api.request("GET", &path, &[], "").await.status, status, "{path}");
    }
}
