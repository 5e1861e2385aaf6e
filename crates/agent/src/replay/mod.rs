//! Recordings of the session. One runs at a time; ended ones are stored until the sandbox ends.
//!
//! A recording is either complete or reported as failed. The session's own programs can access its file, so every read
//! checks that the file is unchanged.

mod ffmpeg;
mod file;
mod matroska;
mod recorder;
mod screencast;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use http::request::Parts;
use http::{HeaderValue, header};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::file::{Video, VideoError};
use self::recorder::Plan;
use crate::browser_handle::BrowserHandle;
use crate::clock::{milliseconds, now};
use crate::reply::{self, Answer, Refusal, ok, read};
use crate::telemetry::Telemetry;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::replay::{
    LIST, MAX_DURATION_SECONDS, MAX_FRAMERATE, READ, ReadReplay, Replay, ReplayName, ReplayState,
    Replays as ReplayList, START, STOP, StartReplay,
};

/// The maximum number of stored recordings.
const MAX_RECORDINGS: usize = 100;
/// The maximum length of a recording's id, in bytes.
const MAX_NAME: usize = 40;
/// All recordings together may use one part in this many of the session's disk.
const DISK_SHARE: u64 = 4;
/// The minimum space for a new recording, in bytes.
const MIN_BYTES: u64 = 4 << 20;
/// The timeout of the first frame.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum time for which a stop waits for the completed file.
const STOP_TIMEOUT: Duration = Duration::from_secs(45);
/// The maximum time for which a change of the display waits until the running recording has paused.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(16);

/// All recordings of the session.
#[derive(Debug)]
pub(crate) struct Replays {
    browser: BrowserHandle,
    telemetry: Arc<Telemetry>,
    /// The path of ffmpeg.
    ffmpeg: PathBuf,
    recordings: Mutex<Vec<Arc<Recording>>>,
    /// The number of changes of the display in progress, during which nothing is recorded.
    paused: watch::Sender<u32>,
    /// True while frames are recorded.
    is_recording: watch::Sender<bool>,
    /// Held by every reader of a video.
    readers: Arc<()>,
}

/// One recording, from its start on.
#[derive(Debug)]
struct Recording {
    id: String,
    stop: CancellationToken,
    progress: watch::Sender<Progress>,
}

/// The progress of a recording.
#[derive(Debug, Clone)]
struct Progress {
    /// True once the first frame is recorded.
    has_begun: bool,
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
            has_begun: false,
            state: ReplayState::Running,
            started: now(),
            finished: None,
            size: 0,
            detail: None,
            video: None,
        };
        Self { id, stop: CancellationToken::new(), progress: watch::Sender::new(progress) }
    }

    fn description(&self) -> Replay {
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

impl Replays {
    pub(crate) fn new(browser: BrowserHandle, telemetry: Arc<Telemetry>, ffmpeg: PathBuf) -> Self {
        let (recordings, paused, is_recording, readers) = Default::default();
        Self { browser, telemetry, ffmpeg, recordings, paused, is_recording, readers }
    }

    /// Serves `/v1/replay/…`.
    pub(crate) async fn serve(self: &Arc<Self>, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            START => self.start(read(body).await?).await,
            LIST => {
                let replays = self.recordings.lock().iter().map(|recording| recording.description()).collect();
                ok(&ReplayList { replays })
            }
            STOP => self.stop(read(body).await?).await,
            READ => self.content(&read(body).await?),
            other => Err(Refusal::no_operation(other)),
        }
    }

    /// Pauses the running recording, if there is one, until the guard is dropped; it continues in a new part. A change
    /// of the display's size and a restart of the browser hold the guard.
    pub(crate) async fn pause(&self) -> PauseGuard<'_> {
        self.paused.send_modify(|count| *count += 1);
        let guard = PauseGuard(&self.paused);
        let mut is_recording = self.is_recording.subscribe();
        drop(tokio::time::timeout(PAUSE_TIMEOUT, is_recording.wait_for(|is_recording| !is_recording)).await);
        guard
    }

    /// Returns true if there are no recordings.
    pub(crate) fn is_empty(&self) -> bool {
        self.recordings.lock().is_empty()
    }

    /// Stops all recordings.
    pub(crate) fn stop_all(&self) {
        self.recordings.lock().iter().for_each(|recording| recording.stop.cancel());
    }

    /// Returns true while a recording runs, or a video is completed or read.
    pub(crate) fn is_busy(&self) -> bool {
        Arc::strong_count(&self.readers) > 1 || self.recordings.lock().iter().any(|recording| !recording.is_over())
    }

    fn find(&self, id: &str) -> Result<Arc<Recording>, Refusal> {
        let missing = || Refusal::new(ErrorCode::Missing, "there is no such recording");
        self.recordings.lock().iter().find(|recording| recording.id == id).cloned().ok_or_else(missing)
    }

    /// Adds a new recording.
    fn add(&self, id: String) -> Result<Arc<Recording>, Refusal> {
        let mut recordings = self.recordings.lock();
        if recordings.iter().any(|recording| !recording.is_over()) {
            return Err(Refusal::new(ErrorCode::InvalidState, "a recording of this session is running"));
        }
        if recordings.len() >= MAX_RECORDINGS {
            let message = format!("a session keeps at most {MAX_RECORDINGS} recordings");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        }
        if recordings.iter().any(|recording| recording.id == id) {
            return Err(Refusal::new(ErrorCode::Exists, "there is a recording of this name"));
        }
        let recording = Arc::new(Recording::new(id));
        recordings.push(Arc::clone(&recording));
        Ok(recording)
    }

    fn remove(&self, id: &str) {
        self.recordings.lock().retain(|recording| recording.id != id);
    }

    /// Returns the size of all files together, in bytes.
    fn total_size(&self) -> u64 {
        self.recordings.lock().iter().map(|recording| recording.progress.borrow().size).sum()
    }

    async fn start(self: &Arc<Self>, request: StartReplay) -> Answer {
        let plan = self.plan(&request)?;
        let recording = self.add(request.replay_id)?;
        let mut progress = recording.progress.subscribe();
        tokio::spawn(recorder::record(Arc::clone(self), Arc::clone(&recording), plan));
        let first_frame = progress.wait_for(|progress| progress.has_begun || progress.is_over());
        let started = match tokio::time::timeout(FIRST_FRAME_TIMEOUT, first_frame).await {
            Ok(Ok(progress)) if progress.has_begun => Ok(()),
            Ok(Ok(progress)) => Err(progress.detail.clone().unwrap_or_default()),
            Ok(Err(_)) | Err(_) => Err(format!("no picture was recorded within {} s", FIRST_FRAME_TIMEOUT.as_secs())),
        };
        if let Err(why) = started {
            recording.stop.cancel();
            self.remove(&recording.id);
            return Err(Refusal::new(ErrorCode::Failed, format_args!("the recording could not begin: {why}")));
        }
        ok(&recording.description())
    }

    /// Checks a request and the space for its recording.
    fn plan(&self, request: &StartReplay) -> Result<Plan, Refusal> {
        self.browser.usable()?;
        let check_range = |field: &str, value: u32, max: u32| {
            if (1..=max).contains(&value) {
                return Ok(());
            }
            Err(Refusal::new(ErrorCode::OutOfRange, format_args!("must be from 1 to {max}")).of_field(field))
        };
        check_range("framerate", request.framerate, MAX_FRAMERATE)?;
        check_range("max_duration_in_seconds", request.max_duration_seconds, MAX_DURATION_SECONDS)?;
        let is_plain = |id: &str| id.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
        if !(1..=MAX_NAME).contains(&request.replay_id.len()) || !is_plain(&request.replay_id) {
            return Err(Refusal::new(ErrorCode::BadRequest, "replay_id: 1 to 40 characters of 0-9a-z"));
        }
        if !self.ffmpeg.is_file() {
            return Err(Refusal::new(ErrorCode::NotSupported, "recordings need ffmpeg, which this installation lacks"));
        }
        let folder = folder();
        Ok(Plan {
            max_bytes: self.room(&folder)?,
            max_duration: Duration::from_secs(request.max_duration_seconds.into()),
            framerate: request.framerate,
            folder,
        })
    }

    /// Returns the maximum size of a new recording, in bytes. While it is completed, its content is on the disk twice.
    fn room(&self, folder: &Path) -> Result<u64, Refusal> {
        let failed =
            |error: std::io::Error| Refusal::new(ErrorCode::DiskFull, format_args!("the recordings' folder: {error}"));
        std::fs::create_dir_all(folder).map_err(failed)?;
        let disk = rustix::fs::statvfs(folder).map_err(|errno| failed(errno.into()))?;
        let share = (disk.f_blocks * disk.f_frsize / DISK_SHARE).saturating_sub(self.total_size());
        if share < MIN_BYTES {
            let message = "the recordings of this session take all of their disk space";
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        }
        let room = share.min(disk.f_bavail * disk.f_frsize / 2);
        if room < MIN_BYTES {
            return Err(Refusal::new(ErrorCode::DiskFull, "the session's disk has no room for a recording"));
        }
        Ok(room)
    }

    async fn stop(&self, request: ReplayName) -> Answer {
        let recording = self.find(&request.replay_id)?;
        recording.stop.cancel();
        let mut progress = recording.progress.subscribe();
        // A file that takes longer is reported in its current state.
        drop(tokio::time::timeout(STOP_TIMEOUT, progress.wait_for(Progress::is_over)).await);
        ok(&recording.description())
    }

    fn content(&self, request: &ReadReplay) -> Answer {
        let recording = self.find(&request.replay_id)?;
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
        let file = video.open().map_err(|error| Refusal::new(ErrorCode::InvalidState, error))?;
        let length = request.length.unwrap_or(u64::MAX).min(video.size.saturating_sub(request.offset));
        let reader = Arc::clone(&self.readers);
        let content = video.read(file, request.offset, length).inspect(move |_| {
            let _held = &reader;
        });
        let mut response = reply::stream("video/mp4", content);
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        Ok(response)
    }
}

/// Returns the folder of the recordings.
fn folder() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from).join(".recordings")
}

/// Pauses recordings until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct PauseGuard<'a>(&'a watch::Sender<u32>);

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl From<VideoError> for std::io::Error {
    fn from(error: VideoError) -> Self {
        Self::other(error)
    }
}
