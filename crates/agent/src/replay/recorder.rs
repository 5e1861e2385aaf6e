//! The life of one recording: parts, each filmed by an ffmpeg of its own, joined at the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::ffmpeg::{self, Ffmpeg, Size, Source, Video as Filming};
use super::file::Video;
use super::{Progress, Recording, now, screencast};
use crate::state::AgentState;
use crate::telemetry::Phase;
use casement_agent_protocol::replay::ReplayState;

/// How often the size of the film is looked at.
const MEASURE: Duration = Duration::from_millis(250);
/// How long a source that went away may take to be back, where its display or browser is being changed.
const CHANGE: Duration = Duration::from_secs(2);
/// How long a change of the display may take.
const MAX_BACKOFF: Duration = Duration::from_secs(120);
/// How long the last picture may take into the pipe.
const LAST_PICTURE: Duration = Duration::from_secs(5);

/// What is to be recorded.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) framerate: u32,
    pub(super) max_duration: Duration,
    pub(super) max_bytes: u64,
    pub(super) folder: PathBuf,
}

/// Why a part ended.
enum End {
    Stopped,
    /// The longest time or the largest size is reached; for people.
    Enough(String),
    /// The display is about to change.
    Paused,
    /// Pictures were missed.
    Broke(String),
}

/// Records until it is stopped, long or large enough, or cannot go on, and makes the file.
pub(super) async fn record(core: Arc<AgentState>, recording: Arc<Recording>, plan: Plan) {
    let began = Instant::now();
    let mut recorder = Recorder {
        core,
        recording,
        deadline: began + plan.max_duration,
        plan,
        size: None,
        parts: Vec::new(),
        crashed: None,
    };
    let end = recorder.video().await;
    recorder.core.replays.rolling.send_replace(false);
    recorder.recording.progress.send_modify(|progress| {
        progress.state = ReplayState::Finishing;
        progress.finished = Some(now());
    });
    recorder.conclude(end).await;
}

struct Recorder {
    core: Arc<AgentState>,
    recording: Arc<Recording>,
    plan: Plan,
    deadline: Instant,
    /// Of the whole film: that of its first part.
    size: Option<Size>,
    parts: Vec<PathBuf>,
    /// The program that filmed the last part, if it ended badly.
    crashed: Option<u32>,
}

impl Recorder {
    async fn video(&mut self) -> End {
        loop {
            let mut paused = self.core.replays.paused.subscribe();
            let free = timeout(MAX_BACKOFF, paused.wait_for(|count| *count == 0)).await.is_ok();
            if !free {
                return End::Broke("the display was being changed for too long".to_owned());
            }
            let before = self.core.viewport();
            self.core.replays.rolling.send_replace(true);
            let end = self.part().await.unwrap_or_else(End::Broke);
            self.core.replays.rolling.send_replace(false);
            match end {
                End::Paused => {}
                End::Broke(why) if !self.is_changing(before).await => {
                    if let (Some(pid), Some(_)) = (self.crashed, self.core.ready()) {
                        self.core.telemetry.program_ended("ffmpeg", Phase::Running, Some(pid));
                    }
                    return End::Broke(why);
                }
                End::Broke(_) => {}
                end => return end,
            }
        }
    }

    /// Whether a part broke because what it showed is being changed.
    async fn is_changing(&self, before: casement_agent_protocol::Viewport) -> bool {
        let mut paused = self.core.replays.paused.subscribe();
        let changed = async {
            let mut status = self.core.status();
            drop(status.wait_for(|status| status.viewport != before).await);
        };
        tokio::select! {
            _ = paused.wait_for(|count| *count > 0) => true,
            () = changed => true,
            () = tokio::time::sleep(CHANGE) => false,
        }
    }

    /// Films one part.
    async fn part(&mut self) -> Result<End, String> {
        let viewport = self.core.viewport();
        let size = *self.size.get_or_insert_with(|| Size::of(viewport.width, viewport.height));
        let to = self.plan.folder.join(format!("{}.{}.part", self.recording.id, self.parts.len()));
        let live = self.core.ready().ok_or("the browser is gone")?;
        let source = match &live.display {
            Some(display) => {
                Source::Display { name: display.name().to_owned(), width: viewport.width, height: viewport.height }
            }
            None => Source::Pictures,
        };
        let program = self.core.config.ffmpeg.clone();
        let filming = Filming { program, source, framerate: self.plan.framerate, size, to: to.clone() };
        let mut ffmpeg = Ffmpeg::video(&filming)?;
        let pid = ffmpeg.pid();
        self.parts.push(to);
        let over = CancellationToken::new();
        let mut pump = matches!(filming.source, Source::Pictures).then(|| ffmpeg.pictures()).flatten().map(|to| {
            let core = Arc::clone(&self.core);
            let bounds = (viewport.width, viewport.height);
            tokio::spawn(screencast::pump(core, self.plan.framerate, bounds, to, over.clone()))
        });
        let end = self.watch(&mut ffmpeg, &mut pump).await;
        over.cancel();
        if let Some(pump) = pump
            && !pump.is_finished()
        {
            drop(timeout(LAST_PICTURE, pump).await);
        }
        match end {
            End::Broke(why) => {
                // Whatever it has can still be played. How it ended says more than that it took no more pictures.
                let ended = ffmpeg.finish().await;
                self.crashed = pid.filter(|_| ended.is_err());
                Ok(End::Broke(ended.err().unwrap_or(why)))
            }
            end => ffmpeg.finish().await.map(|()| end),
        }
    }

    /// Waits for the end of a part.
    async fn watch(&self, ffmpeg: &mut Ffmpeg, pump: &mut Option<JoinHandle<Result<(), String>>>) -> End {
        let mut paused = self.core.replays.paused.subscribe();
        let mut measure = interval(MEASURE);
        measure.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.recording.stop.cancelled() => return End::Stopped,
                _ = paused.wait_for(|count| *count > 0) => return End::Paused,
                () = sleep_until(self.deadline) => {
                    return End::Enough(format!("the longest time of {} s was reached", self.plan.max_duration.as_secs()));
                }
                why = pumped(pump) => return End::Broke(why),
                ended = ffmpeg.ended() => {
                    return End::Broke(ended.err().unwrap_or_else(|| "ffmpeg ended by itself".to_owned()));
                }
                _ = measure.tick() => if let Some(end) = self.measured() { return end },
            }
        }
    }

    fn measured(&self) -> Option<End> {
        let sizes = self.parts.iter().map(|part| std::fs::metadata(part).map_or(0, |found| found.len()));
        let size = sizes.sum::<u64>();
        self.recording.progress.send_if_modified(|progress| {
            let first = size > 0 && !progress.rolling;
            if first {
                progress.rolling = true;
                progress.started = now();
            }
            progress.size = size;
            first
        });
        let enough = || End::Enough(format!("the largest size of {} MiB was reached", self.plan.max_bytes >> 20));
        (size >= self.plan.max_bytes).then(enough)
    }

    /// Makes the file and tells how it ended.
    async fn conclude(self, end: End) {
        let (whole, detail) = match end {
            End::Stopped | End::Paused => (true, None),
            End::Enough(why) => (true, Some(why)),
            End::Broke(why) => (false, Some(why)),
        };
        let made = self.join().await;
        let state = if whole && made.is_ok() { ReplayState::Finished } else { ReplayState::Failed };
        if let Some(why) = detail.as_ref().filter(|_| !whole) {
            tracing::warn!(why, "a recording failed");
        }
        self.recording.progress.send_modify(|progress: &mut Progress| {
            progress.state = state;
            progress.size = made.as_ref().map_or(0, |video| video.size);
            progress.detail = match (&made, detail) {
                (Err(why), None) => Some(why.clone()),
                (_, detail) => detail,
            };
            progress.video = made.ok();
        });
    }

    async fn join(&self) -> Result<Video, String> {
        let with_something = |part: &&PathBuf| std::fs::metadata(part).is_ok_and(|found| found.len() > 0);
        let parts: Vec<PathBuf> = self.parts.iter().filter(with_something).cloned().collect();
        if parts.is_empty() {
            return Err("nothing was recorded".to_owned());
        }
        let to = self.plan.folder.join(format!("{}.mp4", self.recording.id));
        let joined = ffmpeg::join(&self.core.config.ffmpeg, &parts, &to).await;
        let video = match (joined, parts.as_slice()) {
            (Ok(()), _) => Video::at(&to),
            // One part is a film by itself; only its beginning does not tell where everything is.
            (Err(_), [part]) => std::fs::rename(part, &to).and_then(|()| Video::at(&to)),
            (Err(why), _) => {
                drop(std::fs::remove_file(&to));
                Err(std::io::Error::other(why))
            }
        };
        for part in &self.parts {
            drop(std::fs::remove_file(part));
        }
        video.map_err(|error| error.to_string())
    }
}

/// Why there are no more pictures.
async fn pumped(pump: &mut Option<JoinHandle<Result<(), String>>>) -> String {
    match pump {
        Some(pump) => match pump.await {
            Ok(Ok(())) => "the pictures stopped".to_owned(),
            Ok(Err(why)) => why,
            Err(error) => error.to_string(),
        },
        None => std::future::pending().await,
    }
}
