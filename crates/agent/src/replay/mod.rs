//! Recordings of what the session shows: one runs at a time, and those that ended are kept as long as the sandbox lives.
//!
//! A recording is either whole or reported as failed. Its file lies where the session's own programs can reach it, so every reader
//! is shown that it is still the one that was made.

mod ffmpeg;
mod file;
mod matroska;
mod recorder;
mod screencast;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use http::request::Parts;
use http::{HeaderValue, header};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::file::{Video, VideoError};
use self::recorder::Plan;
use crate::reply::{self, Answer, Refusal, ok, read};
use crate::state::AgentState;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::replay::{
    LIST, MAX_DURATION_SECONDS, MAX_FRAMERATE, READ, ReadReplay, Replay, ReplayName, ReplayState,
    Replays as ReplayList, START, STOP, StartReplay,
};

/// Recordings kept at once.
const MAX_BUFFERED: usize = 100;
/// Longest name of a recording.
const MAX_NAME: usize = 40;
/// The part of the session's disk that all recordings together may take.
const SHARE_OF_DISK: u64 = 4;
/// A recording that could not have at least this many bytes is not begun.
const MIN_BYTES: u64 = 4 << 20;
/// How long the first picture may take.
const FIRST_PICTURE: Duration = Duration::from_secs(20);
/// How long whoever stops a recording waits for its file.
const STOPPING: Duration = Duration::from_secs(45);
/// How long a change of the display waits for the running recording to let go of it.
const LETTING_GO: Duration = Duration::from_secs(16);

/// All recordings of the session.
#[derive(Debug)]
pub(crate) struct Replays {
    buffered: Mutex<Vec<Arc<Recording>>>,
    /// How many changes of the display are under way: no pictures are taken meanwhile.
    paused: watch::Sender<u32>,
    /// Whether pictures are taken.
    rolling: watch::Sender<bool>,
    /// Held by everybody who reads a film.
    read: Arc<()>,
}

/// One recording, from its start on.
#[derive(Debug)]
struct Recording {
    id: String,
    stop: CancellationToken,
    progress: watch::Sender<Progress>,
}

/// How a recording is.
#[derive(Debug, Clone)]
struct Progress {
    /// The first picture was taken.
    rolling: bool,
    state: ReplayState,
    started: SystemTime,
    finished: Option<SystemTime>,
    size: u64,
    detail: Option<String>,
    video: Option<Video>,
}

impl Progress {
    fn is_over(&self) -> bool {
        !matches!(self.state, ReplayState::Running | ReplayState::Finishing)
    }
}

impl Recording {
    fn new(id: String) -> Self {
        let progress = Progress {
            rolling: false,
            state: ReplayState::Running,
            started: now(),
            finished: None,
            size: 0,
            detail: None,
            video: None,
        };
        Self { id, stop: CancellationToken::new(), progress: watch::Sender::new(progress) }
    }

    fn described(&self) -> Replay {
        let progress = self.progress.borrow();
        Replay {
            replay_id: self.id.clone(),
            started_at_ms: milliseconds(progress.started),
            finished_at_ms: progress.finished.map(milliseconds),
            state: progress.state,
            size_bytes: progress.size,
            detail: progress.detail.clone(),
        }
    }

    fn is_over(&self) -> bool {
        self.progress.borrow().is_over()
    }
}

#[expect(clippy::disallowed_methods, reason = "a sandbox has no clock but the system's, and no test chooses it")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn milliseconds(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

impl Default for Replays {
    fn default() -> Self {
        let (paused, rolling) = (watch::Sender::new(0), watch::Sender::new(false));
        Self { buffered: Mutex::default(), paused, rolling, read: Arc::new(()) }
    }
}

impl Replays {
    fn buffered(&self) -> parking_lot::MutexGuard<'_, Vec<Arc<Recording>>> {
        self.buffered.lock()
    }

    /// Lets the running recording, if there is one, let go of the display or the browser: it goes on in a new part when the guard
    /// is dropped. Whoever changes the display's size or starts the browser anew holds this meanwhile.
    pub(crate) async fn pause(&self) -> Paused<'_> {
        self.paused.send_modify(|count| *count += 1);
        let guard = Paused(&self.paused);
        let mut rolling = self.rolling.subscribe();
        drop(tokio::time::timeout(LETTING_GO, rolling.wait_for(|rolling| !rolling)).await);
        guard
    }

    /// Whether there are recordings that somebody may want.
    pub(crate) fn are_buffered(&self) -> bool {
        !self.buffered().is_empty()
    }

    /// Ends what is recorded: there is nothing to see any more.
    pub(crate) fn stop_all(&self) {
        self.buffered().iter().for_each(|recording| recording.stop.cancel());
    }

    /// Whether a film is being made or read.
    pub(crate) fn are_busy(&self) -> bool {
        Arc::strong_count(&self.read) > 1 || self.buffered().iter().any(|recording| !recording.is_over())
    }

    fn find(&self, id: &str) -> Result<Arc<Recording>, Refusal> {
        let missing = || Refusal::new(ErrorCode::Missing, "there is no such recording");
        self.buffered().iter().find(|recording| recording.id == id).cloned().ok_or_else(missing)
    }

    /// Takes a place for a new recording.
    fn begin(&self, id: String) -> Result<Arc<Recording>, Refusal> {
        let mut buffered = self.buffered();
        if buffered.iter().any(|recording| !recording.is_over()) {
            return Err(Refusal::new(ErrorCode::InvalidState, "a recording of this session is running"));
        }
        if buffered.len() >= MAX_BUFFERED {
            let message = format!("a session keeps at most {MAX_BUFFERED} recordings");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        }
        if buffered.iter().any(|recording| recording.id == id) {
            return Err(Refusal::new(ErrorCode::Exists, "there is a recording of this name"));
        }
        let recording = Arc::new(Recording::new(id));
        buffered.push(Arc::clone(&recording));
        Ok(recording)
    }

    fn forget(&self, id: &str) {
        self.buffered().retain(|recording| recording.id != id);
    }

    /// What all files together take, in bytes.
    fn taken(&self) -> u64 {
        self.buffered().iter().map(|recording| recording.progress.borrow().size).sum()
    }
}

/// No pictures are taken as long as this lives.
#[derive(Debug)]
#[must_use]
pub(crate) struct Paused<'a>(&'a watch::Sender<u32>);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// The operations of `/v1/replay/…`.
pub(crate) async fn serve(core: &Arc<AgentState>, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        START => start(core, read(body).await?).await,
        LIST => {
            let replays = core.replays.buffered().iter().map(|recording| recording.described()).collect();
            ok(&ReplayList { replays })
        }
        STOP => stop(core, read(body).await?).await,
        READ => content(core, &read(body).await?),
        other => Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {other}"))),
    }
}

async fn start(core: &Arc<AgentState>, requested: StartReplay) -> Answer {
    let plan = plan(core, &requested)?;
    let recording = core.replays.begin(requested.replay_id)?;
    let mut progress = recording.progress.subscribe();
    tokio::spawn(recorder::record(Arc::clone(core), Arc::clone(&recording), plan));
    let first = progress.wait_for(|progress| progress.rolling || progress.is_over());
    let began = match tokio::time::timeout(FIRST_PICTURE, first).await {
        Ok(Ok(progress)) if progress.rolling => Ok(()),
        Ok(Ok(progress)) => Err(progress.detail.clone().unwrap_or_default()),
        Ok(Err(_)) | Err(_) => Err(format!("no picture was recorded within {} s", FIRST_PICTURE.as_secs())),
    };
    if let Err(why) = began {
        recording.stop.cancel();
        core.replays.forget(&recording.id);
        return Err(Refusal::new(ErrorCode::Failed, format_args!("the recording could not begin: {why}")));
    }
    ok(&recording.described())
}

fn plan(core: &AgentState, requested: &StartReplay) -> Result<Plan, Refusal> {
    core.usable()?;
    let bounded = |field: &str, value: u32, most: u32| {
        if (1..=most).contains(&value) {
            return Ok(());
        }
        Err(Refusal::new(ErrorCode::OutOfRange, format_args!("must be from 1 to {most}")).of_field(field))
    };
    bounded("framerate", requested.framerate, MAX_FRAMERATE)?;
    bounded("max_duration_in_seconds", requested.max_duration_seconds, MAX_DURATION_SECONDS)?;
    let plain = |id: &str| id.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    if !(1..=MAX_NAME).contains(&requested.replay_id.len()) || !plain(&requested.replay_id) {
        return Err(Refusal::new(ErrorCode::BadRequest, "replay_id: 1 to 40 characters of 0-9a-z"));
    }
    if !core.config.ffmpeg.is_file() {
        return Err(Refusal::new(ErrorCode::NotSupported, "recordings need ffmpeg, which this installation lacks"));
    }
    let folder = folder();
    Ok(Plan {
        max_bytes: room(core, &folder)?,
        max_duration: Duration::from_secs(requested.max_duration_seconds.into()),
        framerate: requested.framerate,
        folder,
    })
}

/// Where recordings lie.
fn folder() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from).join(".recordings")
}

/// How large a new recording may become, in bytes. It lies there twice while it is made whole.
fn room(core: &AgentState, folder: &Path) -> Result<u64, Refusal> {
    let failed =
        |error: std::io::Error| Refusal::new(ErrorCode::DiskFull, format_args!("the recordings' folder: {error}"));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let disk = rustix::fs::statvfs(folder).map_err(|errno| failed(errno.into()))?;
    let share = (disk.f_blocks * disk.f_frsize / SHARE_OF_DISK).saturating_sub(core.replays.taken());
    if share < MIN_BYTES {
        return Err(Refusal::new(
            ErrorCode::LimitReached,
            "the recordings of this session take all of their disk space",
        ));
    }
    let room = share.min(disk.f_bavail * disk.f_frsize / 2);
    if room < MIN_BYTES {
        return Err(Refusal::new(ErrorCode::DiskFull, "the session's disk has no room for a recording"));
    }
    Ok(room)
}

async fn stop(core: &AgentState, requested: ReplayName) -> Answer {
    let recording = core.replays.find(&requested.replay_id)?;
    recording.stop.cancel();
    let mut progress = recording.progress.subscribe();
    // A file that takes longer is reported as it is by then.
    drop(tokio::time::timeout(STOPPING, progress.wait_for(Progress::is_over)).await);
    ok(&recording.described())
}

fn content(core: &AgentState, requested: &ReadReplay) -> Answer {
    let recording = core.replays.find(&requested.replay_id)?;
    let video = {
        let progress = recording.progress.borrow();
        if !progress.is_over() {
            return Err(Refusal::new(ErrorCode::InvalidState, "the recording is running"));
        }
        let why = || progress.detail.clone().unwrap_or_default();
        progress
            .video
            .clone()
            .ok_or_else(|| Refusal::new(ErrorCode::InvalidState, format_args!("the recording failed: {}", why())))?
    };
    let open = video.open().map_err(|error| Refusal::new(ErrorCode::InvalidState, error))?;
    let length = requested.length.unwrap_or(u64::MAX).min(video.size.saturating_sub(requested.offset));
    let reading = Arc::clone(&core.replays.read);
    let content = video.read(open, requested.offset, length).inspect(move |_| {
        let _held = &reading;
    });
    let mut response = reply::stream("video/mp4", content);
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok(response)
}

impl From<VideoError> for std::io::Error {
    fn from(error: VideoError) -> Self {
        Self::other(error)
    }
}
