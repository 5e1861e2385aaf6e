//! One recording: parts, each encoded by an ffmpeg process of its own, and joined at the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::ffmpeg::{self, Encoding, Ffmpeg, Size, Source};
use super::file::Video;
use super::{Progress, Recording, Replays, screencast};
use crate::clock::now;
use crate::telemetry::Phase;
use casement_agent_protocol::replay::ReplayState;

/// The interval at which the size of the video is measured.
const MEASURE_INTERVAL: Duration = Duration::from_millis(250);
/// The time after the loss of its source within which a change of the display or the browser may be detected.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of a change of the display.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(120);
/// The timeout of writing the last frame to the pipe.
const LAST_FRAME_TIMEOUT: Duration = Duration::from_secs(5);

/// The parameters of a recording.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) framerate: u32,
    pub(super) max_duration: Duration,
    pub(super) max_bytes: u64,
    pub(super) folder: PathBuf,
}

/// The reason why a part ended.
enum End {
    Stopped,
    /// The maximum duration or size is reached, with a text for people.
    LimitReached(String),
    /// The display is about to change.
    Paused,
    /// Frames were lost, with the reason for people.
    Failed(String),
}

/// Records until the recording is stopped, reaches a limit or fails, and completes its file.
pub(super) async fn record(replays: Arc<Replays>, recording: Arc<Recording>, plan: Plan) {
    let started_at = Instant::now();
    let mut recorder = Recorder {
        replays,
        recording,
        deadline: started_at + plan.max_duration,
        plan,
        size: None,
        parts: Vec::new(),
        crashed: None,
    };
    let end = recorder.record_parts().await;
    recorder.replays.is_recording.send_replace(false);
    recorder.recording.progress.send_modify(|progress| {
        progress.state = ReplayState::Finishing;
        progress.finished = Some(now());
    });
    recorder.conclude(end).await;
}

struct Recorder {
    replays: Arc<Replays>,
    recording: Arc<Recording>,
    plan: Plan,
    deadline: Instant,
    /// The size of the video, which is that of its first part.
    size: Option<Size>,
    parts: Vec<PathBuf>,
    /// The process that encoded the last part, if it failed.
    crashed: Option<u32>,
}

impl Recorder {
    async fn record_parts(&mut self) -> End {
        loop {
            let mut paused = self.replays.paused.subscribe();
            let is_unpaused = timeout(PAUSE_TIMEOUT, paused.wait_for(|count| *count == 0)).await.is_ok();
            if !is_unpaused {
                return End::Failed("the display was being changed for too long".to_owned());
            }
            let before = self.replays.browser.viewport();
            self.replays.is_recording.send_replace(true);
            let end = self.record_part().await.unwrap_or_else(End::Failed);
            self.replays.is_recording.send_replace(false);
            match end {
                End::Paused => {}
                End::Failed(why) if !self.is_changing(before).await => {
                    if let (Some(pid), Some(_)) = (self.crashed, self.replays.browser.ready()) {
                        self.replays.telemetry.report_program_end("ffmpeg", Phase::Running, Some(pid));
                    }
                    return End::Failed(why);
                }
                End::Failed(_) => {}
                end => return end,
            }
        }
    }

    /// Returns true if a part failed because its display or browser is being changed.
    async fn is_changing(&self, before: casement_agent_protocol::Viewport) -> bool {
        let mut paused = self.replays.paused.subscribe();
        let changed = async {
            let mut status = self.replays.browser.status().subscribe();
            drop(status.wait_for(|status| status.viewport != before).await);
        };
        tokio::select! {
            _ = paused.wait_for(|count| *count > 0) => true,
            () = changed => true,
            () = tokio::time::sleep(CHANGE_TIMEOUT) => false,
        }
    }

    /// Records one part.
    async fn record_part(&mut self) -> Result<End, String> {
        let viewport = self.replays.browser.viewport();
        let size = *self.size.get_or_insert_with(|| Size::of(viewport.width, viewport.height));
        let to = self.plan.folder.join(format!("{}.{}.part", self.recording.id, self.parts.len()));
        let live = self.replays.browser.ready().ok_or("the browser has ended")?;
        let source = match &live.display {
            Some(display) => {
                Source::Display { name: display.name().to_owned(), width: viewport.width, height: viewport.height }
            }
            None => Source::Frames,
        };
        let program = self.replays.ffmpeg.clone();
        let max_bytes = self.plan.max_bytes.saturating_sub(self.recorded_bytes()).max(1);
        let encoding = Encoding { program, source, framerate: self.plan.framerate, size, max_bytes, to: to.clone() };
        let mut ffmpeg = Ffmpeg::start(&encoding)?;
        let pid = ffmpeg.pid();
        self.parts.push(to);
        let ended = CancellationToken::new();
        let mut pump = matches!(encoding.source, Source::Frames).then(|| ffmpeg.frame_input()).flatten().map(|to| {
            let browser = self.replays.browser.clone();
            let bounds = (viewport.width, viewport.height);
            tokio::spawn(screencast::pump(browser, self.plan.framerate, bounds, to, ended.clone()))
        });
        let end = self.wait_for_end(&mut ffmpeg, &mut pump).await;
        ended.cancel();
        if let Some(pump) = pump
            && !pump.is_finished()
        {
            drop(timeout(LAST_FRAME_TIMEOUT, pump).await);
        }
        match end {
            End::Failed(why) => {
                // The recorded part can still be played. The exit of ffmpeg describes the failure in more detail than
                // the broken pipe.
                let finished = ffmpeg.finish().await;
                // At the largest size ffmpeg ends by itself.
                if finished.is_ok()
                    && let Some(end) = self.measure()
                {
                    return Ok(end);
                }
                self.crashed = pid.filter(|_| finished.is_err());
                Ok(End::Failed(finished.err().unwrap_or(why)))
            }
            end => ffmpeg.finish().await.map(|()| end),
        }
    }

    /// Waits for the end of a part.
    async fn wait_for_end(&self, ffmpeg: &mut Ffmpeg, pump: &mut Option<JoinHandle<Result<(), String>>>) -> End {
        let mut paused = self.replays.paused.subscribe();
        let mut measure = interval(MEASURE_INTERVAL);
        measure.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.recording.stop.cancelled() => return End::Stopped,
                _ = paused.wait_for(|count| *count > 0) => return End::Paused,
                () = sleep_until(self.deadline) => {
                    return End::LimitReached(format!("the longest time of {} s was reached", self.plan.max_duration.as_secs()));
                }
                why = pump_end(pump) => return End::Failed(why),
                ended = ffmpeg.ended() => {
                    return End::Failed(ended.err().unwrap_or_else(|| "ffmpeg ended by itself".to_owned()));
                }
                _ = measure.tick() => if let Some(end) = self.measure() { return end },
            }
        }
    }

    fn measure(&self) -> Option<End> {
        let size = self.recorded_bytes();
        self.recording.progress.send_if_modified(|progress| {
            let is_first = size > 0 && !progress.has_begun;
            if is_first {
                progress.has_begun = true;
                progress.started = now();
            }
            progress.size = size;
            is_first
        });
        let limit_reached =
            || End::LimitReached(format!("the largest size of {} MiB was reached", self.plan.max_bytes >> 20));
        (size >= self.plan.max_bytes).then(limit_reached)
    }

    /// Returns the size of all parts so far.
    fn recorded_bytes(&self) -> u64 {
        self.parts.iter().map(|part| std::fs::metadata(part).map_or(0, |found| found.len())).sum()
    }

    /// Completes the file and publishes the result.
    async fn conclude(self, end: End) {
        let (is_complete, detail) = match end {
            End::Stopped | End::Paused => (true, None),
            End::LimitReached(why) => (true, Some(why)),
            End::Failed(why) => (false, Some(why)),
        };
        let joined = self.join().await;
        let state = if is_complete && joined.is_ok() { ReplayState::Finished } else { ReplayState::Failed };
        if let Some(why) = detail.as_ref().filter(|_| !is_complete) {
            tracing::warn!(why, "a recording failed");
        }
        self.recording.progress.send_modify(|progress: &mut Progress| {
            progress.state = state;
            progress.size = joined.as_ref().map_or(0, |video| video.size);
            progress.detail = match (&joined, detail) {
                (Err(why), None) => Some(why.clone()),
                (_, detail) => detail,
            };
            progress.video = joined.ok();
        });
    }

    async fn join(&self) -> Result<Video, String> {
        let is_not_empty = |part: &&PathBuf| std::fs::metadata(part).is_ok_and(|found| found.len() > 0);
        let parts: Vec<PathBuf> = self.parts.iter().filter(is_not_empty).cloned().collect();
        if parts.is_empty() {
            return Err("nothing was recorded".to_owned());
        }
        let to = self.plan.folder.join(format!("{}.mp4", self.recording.id));
        let joined = ffmpeg::join(&self.replays.ffmpeg, &parts, &to).await;
        let video = match (joined, parts.as_slice()) {
            (Ok(()), _) => Video::at(&to),
            // One part is a playable video, although its index is not at the beginning.
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

/// Waits for the end of the frames and returns its reason.
async fn pump_end(pump: &mut Option<JoinHandle<Result<(), String>>>) -> String {
    match pump {
        Some(pump) => match pump.await {
            Ok(Ok(())) => "the pictures stopped".to_owned(),
            Ok(Err(why)) => why,
            Err(error) => error.to_string(),
        },
        None => std::future::pending().await,
    }
}
