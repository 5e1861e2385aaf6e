//! Recordings, checked as videos.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::extension::{RESTART, RestartRequest};
use casement_agent_protocol::replay::{
    LIST, READ, ReadReplay, Replay, ReplayName, ReplayState, Replays, START, STOP, StartReplay,
};
use casement_agent_protocol::{ErrorCode, Status, Viewport};
use serde_json::{Value, json};

use crate::cdp::{Cdp, EMPTY};
use crate::headless::refusal;
use crate::sandbox::{Sandbox, config, gone, signal};

const WITHIN: Duration = Duration::from_secs(60);
const RED: [u8; 3] = [255, 0, 0];
const GREEN: [u8; 3] = [0, 128, 0];
const BLUE: [u8; 3] = [0, 0, 255];

pub(crate) async fn start(client: &AgentClient, id: &str, max_duration_seconds: u32) -> Result<Replay, ClientError> {
    let requested = StartReplay { replay_id: id.to_owned(), framerate: 10, max_duration_seconds };
    client.call(START, &requested, WITHIN).await
}

pub(crate) async fn stop(client: &AgentClient, id: &str) -> Replay {
    client.call(STOP, &ReplayName { replay_id: id.to_owned() }, WITHIN).await.unwrap()
}

async fn list(client: &AgentClient) -> Vec<Replay> {
    client.call::<Replays>(LIST, &json!({}), WITHIN).await.unwrap().replays
}

async fn over(client: &AgentClient, id: &str) -> Replay {
    let deadline = Instant::now() + WITHIN;
    loop {
        let replay = list(client).await.into_iter().find(|replay| replay.replay_id == id).unwrap();
        if !matches!(replay.state, ReplayState::Running | ReplayState::Finishing) {
            return replay;
        }
        assert!(Instant::now() < deadline, "{replay:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn read(
    client: &AgentClient,
    id: &str,
    offset: u64,
    length: Option<u64>,
) -> Result<Vec<u8>, ClientError> {
    let requested = ReadReplay { replay_id: id.to_owned(), offset, length };
    let bytes = client.download(READ, &requested, WITHIN).await?;
    let length = bytes.length.unwrap();
    let bytes = bytes.collect(usize::MAX).await?;
    assert_eq!(bytes.len() as u64, length);
    Ok(bytes.into())
}

/// A video on the disk of the test.
struct Video {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Video {
    async fn of(client: &AgentClient, id: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film.mp4");
        std::fs::write(&path, read(client, id, 0, None).await.unwrap()).unwrap();
        Self { path, _folder: folder }
    }

    /// Returns the codec, width, height and frame rate; and the duration in seconds.
    fn facts(&self) -> (Value, f64) {
        let entries = "stream=codec_name,width,height,avg_frame_rate:format=duration";
        let output = Command::new("ffprobe")
            .args(["-v", "error", "-of", "json", "-show_entries", entries])
            .arg(&self.path)
            .output()
            .unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let seconds = found["format"]["duration"].as_str().unwrap().parse().unwrap();
        (found["streams"][0].clone(), seconds)
    }

    /// Returns the colour in the middle of the video's lower half, five times per second.
    fn colours(&self) -> Vec<[u8; 3]> {
        let output = Command::new("ffmpeg")
            .args(["-v", "error", "-i"])
            .arg(&self.path)
            .args(["-vf", "crop=iw/4:ih/4:iw*3/8:ih*5/8,fps=5,scale=1:1", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout.chunks_exact(3).map(|rgb| [rgb[0], rgb[1], rgb[2]]).collect()
    }

    /// Returns the number of these pictures that have approximately this colour.
    fn shows(&self, colour: [u8; 3]) -> usize {
        let near = |found: &[u8; 3]| found.iter().zip(colour).all(|(a, b)| a.abs_diff(b) < 24);
        self.colours().iter().filter(|found| near(found)).count()
    }

    /// Returns true if the description precedes the pictures, so that a player can begin before it has the whole video.
    fn starts_fast(&self) -> bool {
        let bytes = std::fs::read(&self.path).unwrap();
        let at = |name: &[u8]| bytes.windows(4).position(|window| window == name);
        at(b"moov").unwrap() < at(b"mdat").unwrap()
    }
}

async fn paint(cdp: &mut Cdp, page: &str, colour: &str) {
    let script = format!("document.documentElement.style.background = '{colour}'; 1");
    cdp.evaluate(page, &script).await;
    cdp.drawn(page).await;
}

/// Waits until a further part of the recording begins, after a change that ended the first part.
async fn records_again(sandbox: &Sandbox, id: &str) {
    let folder = format!("/proc/{}/root/home/casement/.recordings", sandbox.agent());
    let (of_it, first) = (format!("{id}."), format!("{id}.0.part"));
    let deadline = Instant::now() + WITHIN;
    loop {
        let begun = std::fs::read_dir(&folder).unwrap().flatten().any(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            let further = name.starts_with(&of_it) && name.ends_with(".part") && name != first;
            further && file.metadata().is_ok_and(|found| found.len() > 0)
        });
        if begun {
            return;
        }
        assert!(Instant::now() < deadline, "{id} does not go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits while the recording runs, because a recording takes real time.
async fn let_it_record(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

async fn a_video_of_everything(headless: bool) {
    let mut config = config(headless);
    config.start_url = Some(EMPTY.to_owned());
    let (sandbox, status, client) = Sandbox::with_browser(&config, "recorded").await;
    let (mut cdp, page) = Cdp::at_first_page(&sandbox, &status).await;
    paint(&mut cdp, &page, "red").await;

    let called = Instant::now();
    let began = start(&client, "a", 60).await.unwrap();
    let filmed = Instant::now();
    assert_eq!((began.state, began.finished_at_ms), (ReplayState::Running, None));
    assert_eq!(refusal(start(&client, "b", 60).await), ErrorCode::InvalidState, "one at a time");
    assert_eq!(refusal(read(&client, "a", 0, None).await), ErrorCode::InvalidState);
    let_it_record(3.0).await;
    let other = cdp.page("about:blank#new", false).await;
    paint(&mut cdp, &other, "blue").await;
    let_it_record(2.5).await;
    let changing = Instant::now();
    client.viewport(Viewport { width: 701, height: 500, refresh_rate: 60 }).await.unwrap();
    paint(&mut cdp, &other, "green").await;
    records_again(&sandbox, "a").await;
    let changing = changing.elapsed();
    let_it_record(4.0).await;
    sandbox.memory("ffmpeg");
    sandbox.memory("casement-agent");
    let least = (filmed.elapsed() - changing).as_secs_f64();
    let took = Instant::now();
    let done = stop(&client, "a").await;
    println!("stopped within {:?}: {done:?}", took.elapsed());
    assert_eq!((done.state, done.detail.as_deref()), (ReplayState::Finished, None));
    assert!(done.finished_at_ms.unwrap() >= done.started_at_ms + 6000);
    let max = called.elapsed().as_secs_f64();

    let video = Video::of(&client, "a").await;
    let (facts, seconds) = video.facts();
    assert_eq!(facts, json!({ "codec_name": "h264", "width": 900, "height": 700, "avg_frame_rate": "10/1" }));
    // Nothing is recorded until a new encoder has started, and each part may lack a little at its end.
    assert!((least - 3.0..max + 1.5).contains(&seconds), "{seconds} s of {least} to {max} s");
    assert!(video.starts_fast());
    let shown = [RED, BLUE, GREEN].map(|colour| video.shows(colour));
    println!("{seconds} s of {max:.1} s; red, blue, green: {shown:?} of {}", video.colours().len());
    assert!(shown.iter().all(|count| *count >= 5), "{shown:?} of {:?}", video.colours());

    let whole = read(&client, "a", 0, None).await.unwrap();
    assert_eq!(whole.len() as u64, done.size_bytes);
    assert_eq!(read(&client, "a", 10, Some(20)).await.unwrap(), whole[10..30]);
    assert_eq!(read(&client, "a", done.size_bytes - 5, None).await.unwrap(), whole[whole.len() - 5..]);
    gone(&sandbox, "ffmpeg").await;

    it_goes_on_when_chromium_is_started_anew(&sandbox, &client).await;
    what_is_damaged_is_reported(&sandbox, &client).await;
    what_cannot_go_on_is_reported(&sandbox, &client).await;
}

async fn it_goes_on_when_chromium_is_started_anew(sandbox: &Sandbox, client: &AgentClient) {
    let called = Instant::now();
    start(client, "anew", 60).await.unwrap();
    let filmed = Instant::now();
    let_it_record(1.5).await;
    let before = filmed.elapsed().as_secs_f64();
    client.call::<Status>(RESTART, &RestartRequest::default(), WITHIN).await.unwrap();
    records_again(sandbox, "anew").await;
    let_it_record(4.0).await;
    let done = stop(client, "anew").await;
    let max = called.elapsed().as_secs_f64();
    assert_eq!(done.state, ReplayState::Finished, "{done:?}");
    let seconds = Video::of(client, "anew").await.facts().1;
    assert!((before + 1.0..max + 1.5).contains(&seconds), "{seconds} s of {max} s, {before} s of them before");
}

async fn what_is_damaged_is_reported(sandbox: &Sandbox, client: &AgentClient) {
    let path = format!("/proc/{}/root/home/casement/.recordings/a.mp4", sandbox.agent());
    std::fs::OpenOptions::new().append(true).open(Path::new(&path)).unwrap().set_len(100).unwrap();
    assert_eq!(refusal(read(client, "a", 0, None).await), ErrorCode::InvalidState);
}

async fn what_cannot_go_on_is_reported(sandbox: &Sandbox, client: &AgentClient) {
    start(client, "killed", 60).await.unwrap();
    let_it_record(6.0).await;
    signal(*sandbox.processes("libx264").first().unwrap(), "KILL");
    let failed = over(client, "killed").await;
    assert_eq!(failed.state, ReplayState::Failed);
    assert!(failed.detail.as_deref().unwrap().contains("signal: 9"), "{failed:?}");
    assert!(Video::of(client, "killed").await.facts().1 >= 2.0, "what was written before can be played");

    // The next recording is not affected.
    start(client, "short", 5).await.unwrap();
    let ended = over(client, "short").await;
    assert_eq!(ended.state, ReplayState::Finished, "{ended:?}");
    assert!(ended.detail.as_deref().unwrap().contains("5 s"), "{ended:?}");
    let seconds = Video::of(client, "short").await.facts().1;
    assert!((1.0..8.0).contains(&seconds), "{seconds}");
    assert_eq!(stop(client, "short").await, ended, "stopping it once more changes nothing");
    assert_eq!(list(client).await.len(), 4);
    assert_eq!(refusal(client.call::<Replay>(STOP, &json!({ "replay_id": "none" }), WITHIN).await), ErrorCode::Missing);
}

#[tokio::test]
async fn an_installation_without_ffmpeg_records_nothing_and_says_so() {
    let mut config = config(true);
    config.ffmpeg = "/usr/bin/no-such-program".into();
    let sandbox = Sandbox::start(&config);
    sandbox.ready("without ffmpeg").await;
    assert_eq!(refusal(start(&sandbox.client().await, "a", 60).await), ErrorCode::NotSupported);
}

#[tokio::test]
async fn a_recording_without_a_display_shows_the_page_in_front() {
    a_video_of_everything(true).await;
}

#[tokio::test]
async fn a_recording_with_a_display_shows_all_of_it() {
    a_video_of_everything(false).await;
}
