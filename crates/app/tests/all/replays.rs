//! Tests of recordings: with the public client, in a separate browser, and with a killed server.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Request;
use casement_test_support::program::{
    Cdp, Clients, Options, Pages, Server, Session, Shared, processes_of, repository, until,
};
use serde_json::{Value, json};

use super::host::{browser_of, chromium, sandbox, sandboxes};

const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the width, the height and the seconds of a video, and the number of frames, at five per second, that are
/// green in the lower half.
fn video(path: &Path) -> anyhow::Result<(u64, u64, f64, usize)> {
    let probe = Command::new("ffprobe")
        .args(["-v", "error", "-of", "json", "-show_entries", "stream=codec_name,width,height:format=duration"])
        .arg(path)
        .output()?;
    let found: Value = serde_json::from_slice(&probe.stdout).context("ffprobe finds no film")?;
    let stream = &found["streams"][0];
    ensure!(stream["codec_name"] == "h264", "{found}");
    let crop = "fps=5,crop=iw/4:ih/4:iw*3/8:ih*5/8,scale=1:1";
    let pictures = Command::new("ffmpeg")
        .args(["-v", "error", "-i"])
        .arg(path)
        .args(["-vf", crop, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"])
        .output()?;
    ensure!(pictures.status.success(), "{}", String::from_utf8_lossy(&pictures.stderr));
    let near = |rgb: &&[u8]| rgb.iter().zip([0_u8, 160, 80]).all(|(found, wanted)| found.abs_diff(wanted) < 24);
    let green = pictures.stdout.chunks_exact(3).filter(near).count();
    let seconds = found["format"]["duration"].as_str().context("no duration")?.parse()?;
    let side = |name: &str| stream[name].as_u64().context("no size");
    Ok((side("width")?, side("height")?, seconds, green))
}

fn every_call_works(headless: bool) -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let arguments = [pages.url(""), headless.to_string()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/replays.py", &arguments)?;
    let saw = json!({
        "gpu": ["BadRequestError", "not_supported"],
        "sound": ["BadRequestError", "not_supported"],
        "bounds": ["BadRequestError", "invalid_input"],
        "second": ["ConflictError", "invalid_state"],
        "running": ["ConflictError", "invalid_state"],
        "viewport": ["ConflictError", "invalid_state"],
        "unknown": ["NotFoundError", "not_found"],
        "page": true,
        "deleted": ["NotFoundError", "not_found"],
        "begun": ["NotFoundError", "not_found"],
        "neither": ["NotFoundError", "not_found"],
    });
    assert_eq!(run.json()?, saw);
    let (width, height, seconds, green) = video(&run.dir.path().join("film.mp4"))?;
    assert_eq!((width, height), (800, 600), "the size of its first part");
    // The duration depends on the calls in between, so the bounds are wide.
    ensure!((3.0..300.0).contains(&seconds), "{seconds} s");
    ensure!(green >= 12, "green in {green} pictures of {seconds} s");
    let (width, height, ..) = video(&run.dir.path().join("last.mp4"))?;
    assert_eq!((width, height), (640, 480));
    Ok(())
}

#[test]
fn every_call_of_the_python_client_for_recordings_works_without_a_display() -> anyhow::Result<()> {
    every_call_works(true)
}

#[test]
fn every_call_of_the_python_client_for_recordings_works_with_a_display() -> anyhow::Result<()> {
    every_call_works(false)
}

/// What the example does instead of waiting for three seconds only.
const WAITS_FOR_THE_PAGE: &str = "client.browsers.playwright.execute(session.session_id, code='''
        await page.waitForURL('**/green');
        await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
    '''); time.sleep(3)";

#[test]
fn the_recording_example_saves_a_video() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    // On a busy machine the page takes longer to load than the example waits.
    let example = std::fs::read_to_string(repository().join("docs/examples/recording.py"))?;
    let patient = example.replace("time.sleep(3)", WAITS_FOR_THE_PAGE);
    ensure!(patient != example, "it waits otherwise");
    let run = Clients::find()?.run_text(server, "recording.py", &patient, &[&pages.url("/green")])?;

    ensure!(run.stdout.starts_with(&format!("{}/live/", server.url())), "{}", run.stdout);
    let (width, height, seconds, green) = video(&run.dir.path().join("recording.mp4"))?;
    assert_eq!((width, height), (1920, 1080));
    ensure!((2.0..90.0).contains(&seconds) && green >= 5, "green in {green} pictures of {seconds} s");
    Ok(())
}

fn start(server: &Server, session: &Session) -> anyhow::Result<Value> {
    let body = json!({ "framerate": 5, "max_duration_in_seconds": 900 });
    server.post(&format!("/browsers/{}/replays", session.id()), &body)?.expect(201)?.json()
}

/// Creates a session that shows only the green page.
fn green(server: &Server, pages: &Pages) -> anyhow::Result<Session> {
    let body = json!({ "headless": true, "timeout_seconds": 900, "start_url": pages.url("/green") });
    let session = server.create(&body)?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    let shown = "location.pathname == '/green' && document.readyState == 'complete' \
        && new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
    until("the page is shown", TEST_TIMEOUT, || (client.evaluate(&page, shown).ok()? == true).then_some(()))?;
    Ok(session)
}

#[test]
fn a_stopped_recording_plays_in_a_browser() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = green(server, pages)?;
    let replay = start(server, &session)?;
    let url = replay["replay_view_url"].as_str().context("no page")?.to_owned();
    let which = replay["replay_id"].as_str().context("no id")?;
    let stop = format!("/browsers/{}/replays/{which}/stop", session.id());
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/replay_page.mjs", &[&url, &stop])?;
    let seen = run.json()?;
    assert_eq!((&seen["size"], &seen["complaints"]), (&json!([1920, 1080]), &json!([])));
    ensure!(seen["seconds"].as_f64().is_some_and(|seconds| seconds > 3.0), "{seen}");
    let green = seen["colour"][1].as_u64().context("no colour")?;
    ensure!(green.abs_diff(160) < 24, "{seen}");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}

/// Returns the only recording of an ended session, when it is complete or has failed.
fn settled(server: &Server, list: &str) -> anyhow::Result<Value> {
    until("the recording is kept or failed", TEST_TIMEOUT, || {
        let listed = server.get(list).ok()?.json().ok()?;
        let all = listed.as_array().filter(|all| all.len() == 1)?;
        (all[0]["status"] != "running").then(|| all[0].clone())
    })
}

/// Waits until fragments of a recording, of two seconds each, are written in the sandbox of its session.
fn until_written(server: &Server, browser: &str, fragments: usize) -> anyhow::Result<()> {
    let inside = processes_of(&sandbox(server, browser));
    let agent = inside.iter().find(|process| process.argv.get(1).is_some_and(|word| word == "agent"));
    let folder = format!("/proc/{}/root/home/casement/.recordings", agent.context("no agent runs")?.pid);
    until("enough is written", TEST_TIMEOUT, || {
        let mut files = std::fs::read_dir(&folder).ok()?.flatten().map(|file| file.path());
        let part = files.find(|path| path.extension() == Some("part".as_ref()))?;
        let bytes = std::fs::read(part).ok()?;
        (bytes.windows(4).filter(|word| word == b"moof").count() >= fragments).then_some(())
    })
}

fn downloaded(server: &Server, which: &str) -> anyhow::Result<(u64, u64, f64, usize)> {
    let answer = server.get(which)?.expect(200)?;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("film.mp4");
    std::fs::write(&path, &answer.body)?;
    video(&path)
}

#[test]
fn a_recording_is_stored_or_failed_after_its_server_is_stopped_or_killed() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options { spares: 0, ..Options::reaching(&pages) })?;
    let begin = |server: &Server| -> anyhow::Result<(Session, String, String)> {
        let session = green(server, &pages)?;
        let list = format!("/browsers/{}/replays", session.id());
        let which = format!("{list}/{}", start(server, &session)?["replay_id"].as_str().context("no id")?);
        Ok((session, list, which))
    };

    let (_, list, which) = begin(&server)?;
    ensure!(server.stop_all()?.success(), "it does not end well");
    server.restart()?;
    assert_eq!(settled(&server, &list)?["status"], "finished");
    downloaded(&server, &which)?;

    // The server is killed between the end of the session and the end of its video.
    let (session, list, which) = begin(&server)?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    server.kill()?;
    server.restart()?;
    let recording = settled(&server, &list)?;
    match recording["status"].as_str() {
        Some("finished") => drop(downloaded(&server, &which)?),
        _ => ensure!(recording["detail"].as_str().is_some_and(|why| !why.is_empty()), "{recording}"),
    }
    until("its sandbox is gone", TEST_TIMEOUT, || sandboxes(&server).ok()?.is_empty().then_some(()))?;

    // The sandbox is killed while the server does not run.
    let (session, list, which) = begin(&server)?;
    let place = sandbox(&server, &browser_of(&server, &session)?);
    server.kill()?;
    for process in processes_of(&place) {
        // The end of the first process may end all others.
        drop(server.signal(&process, rustix::process::Signal::KILL));
    }
    until("nothing runs inside", TEST_TIMEOUT, || processes_of(&place).is_empty().then_some(()))?;
    server.restart()?;
    let recording = settled(&server, &list)?;
    assert_eq!(recording["status"], "failed", "{recording}");
    ensure!(recording["detail"].as_str().is_some_and(|why| why.contains("machine")), "{recording}");
    assert_eq!(server.get(&which)?.expect(409)?.json()?["code"], "invalid_state");
    Ok(())
}

#[test]
fn a_recording_continues_while_the_server_is_down() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options { spares: 0, ..Options::reaching(&pages) })?;
    let session = green(&server, &pages)?;
    let replay = start(&server, &session)?;
    let which = format!("/browsers/{}/replays/{}", session.id(), replay["replay_id"].as_str().context("no id")?);
    let browser = browser_of(&server, &session)?;
    server.kill()?;
    until_written(&server, &browser, 3)?;
    server.restart()?;
    server.post(&format!("{which}/stop"), &json!({}))?.expect(204)?;
    let answer = Request::new("GET", &which).bearer(server.key()).send(server.address())?.expect(200)?;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("film.mp4");
    std::fs::write(&path, &answer.body)?;
    let (_, _, seconds, green) = video(&path)?;
    ensure!(seconds >= 3.0 && green >= 10, "green in {green} pictures of {seconds} s");
    Ok(())
}

/// A page whose frames all differ and cannot be compressed.
const NOISE: &str = "<body style='margin:0'><canvas id=c width=800 height=600></canvas><script>\
    const canvas = c.getContext('2d'), picture = canvas.createImageData(800, 600);\
    setInterval(() => { const words = new Uint32Array(picture.data.buffer);\
    for (let at = 0; at < words.length; at++) words[at] = 0xff000000 | Math.random() * 0xffffff;\
    canvas.putImageData(picture, 0, 0); }, 50)</script>";

#[test]
fn a_recording_at_its_size_limit_stops_and_can_be_played() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::with_small_sessions();
    pages.put("/noise", NOISE);
    let viewport = json!({ "width": 800, "height": 600 });
    let noise = pages.url("/noise");
    let shape = json!({ "headless": true, "timeout_seconds": 900, "start_url": noise, "viewport": viewport });
    let session = server.create(&shape)?;
    let list = format!("/browsers/{}/replays", session.id());
    let replay = server.post(&list, &json!({ "framerate": 20 }))?.expect(201)?.json()?;
    let ended = until("the recording has its share", TEST_TIMEOUT, || {
        let listed = server.get(&list).ok()?.json().ok()?;
        (listed[0]["status"] != "running").then(|| listed[0].clone())
    })?;
    assert_eq!(ended["status"], "finished", "{ended}");
    ensure!(ended["detail"].as_str().is_some_and(|why| why.contains("largest size")), "{ended}");
    let size = ended["size_bytes"].as_u64().context("no size")?;
    ensure!((8 << 20..24 << 20).contains(&size), "{size} bytes of a home of 64 MiB");
    let which = replay["replay_id"].as_str().context("no id")?;
    let answer = server.get(&format!("{list}/{which}"))?.expect(200)?;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("film.mp4");
    std::fs::write(&path, &answer.body)?;
    video(&path)?;
    // The limit is reached: the next recording is refused, and the session continues.
    assert_eq!(server.post(&list, &json!({}))?.expect(429)?.json()?["code"], "limit_exceeded");
    assert_eq!(server.get(&format!("/browsers/{}", session.id()))?.status, 200);
    Ok(())
}

#[test]
fn a_recording_whose_encoder_is_killed_is_reported_and_what_was_saved_can_be_played() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = green(server, pages)?;
    let replay = start(server, &session)?;
    let list = format!("/browsers/{}/replays", session.id());
    let which = format!("{list}/{}", replay["replay_id"].as_str().context("no id")?);
    let browser = browser_of(server, &session)?;
    until_written(server, &browser, 3)?;
    let inside = processes_of(&sandbox(server, &browser));
    let encoder = inside.iter().find(|process| process.argv.iter().any(|word| word == "libx264"));
    server.signal(encoder.context("nothing films")?, rustix::process::Signal::KILL)?;
    let failed = until("the recording has failed", TEST_TIMEOUT, || {
        let listed = server.get(&list).ok()?.json().ok()?;
        (listed[0]["status"] == "failed").then(|| listed[0].clone())
    })?;
    ensure!(failed["detail"].as_str().is_some_and(|why| why.contains("signal")), "{failed}");
    assert_eq!(server.get(&which)?.expect(409)?.json()?["code"], "invalid_state");
    let answer = server.get(&format!("{which}?partial=true"))?.expect(200)?;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("film.mp4");
    std::fs::write(&path, &answer.body)?;
    ensure!(video(&path)?.2 >= 2.0, "less than what was written before");

    // After the browser is killed too and the session has ended, the report and the stored part remain.
    server.signal(&chromium(server, &browser)?[0], rustix::process::Signal::KILL)?;
    let path = format!("/browsers/{}", session.id());
    until("the session has ended", TEST_TIMEOUT, || (server.get(&path).ok()?.status == 404).then_some(()))?;
    let stored = settled(server, &list)?;
    assert_eq!((&stored["status"], &stored["detail"]), (&failed["status"], &failed["detail"]));
    assert_eq!(server.get(&which)?.status, 409);
    ensure!(server.get(&format!("{which}?partial=true"))?.expect(200)?.body == answer.body, "another film");
    Ok(())
}
