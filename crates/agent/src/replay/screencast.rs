//! The page in front as a row of pictures, for a browser without a display.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::matroska;
use crate::cdp::{Cdp, CdpError, Notice};
use crate::state::AgentState;

/// Quality of the pictures, of 100. They are compressed once more.
const QUALITY: u8 = 85;
/// How long the browser may take for a command.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The last picture is repeated after this time, so that the film never lags behind by more.
const REPEAT: Duration = Duration::from_secs(1);
/// How often it is looked which page is in front.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A page that has shown nothing new for this long is asked for a picture once more.
const RENEW: Duration = Duration::from_secs(10);
/// How long the pipe may stay full.
const STALL: Duration = Duration::from_secs(20);

/// Writes the pictures of the page in front to `to` until `end`, at most `framerate` each second and none larger than `size`.
pub(super) async fn pump(
    core: Arc<AgentState>,
    framerate: u32,
    size: (u32, u32),
    to: ChildStdin,
    end: CancellationToken,
) -> Result<(), String> {
    let path = core.status().borrow().browser_ws_path.clone();
    let opened = timeout(TIMEOUT, Cdp::connect(core.config.debugging_port, &path)).await;
    let (cdp, notices) = opened.map_err(|_| "the browser does not answer".to_owned())?.map_err(text)?;
    cdp.call(None, "Target.setDiscoverTargets", json!({ "discover": true }), TIMEOUT).await.map_err(text)?;
    let video = Video { to, framerate, began: Instant::now(), last: Vec::new(), fresh: false, written: None };
    let mut cast = Cast { core, cdp, size, current: None, unanswered: None, received: Instant::now(), video };
    cast.run(notices, framerate, end).await
}

fn text(error: CdpError) -> String {
    format!("the pictures of the page stopped: {error}")
}

/// The page that is followed.
struct Current {
    target: String,
    session: String,
}

struct Cast {
    core: Arc<AgentState>,
    cdp: Cdp,
    size: (u32, u32),
    current: Option<Current>,
    /// The picture that is answered at the next tick: the browser makes the next one then.
    unanswered: Option<Value>,
    received: Instant,
    video: Video,
}

impl Cast {
    async fn run(
        &mut self,
        mut notices: mpsc::Receiver<Notice>,
        framerate: u32,
        end: CancellationToken,
    ) -> Result<(), String> {
        let mut tick = interval(Duration::from_secs(1) / framerate);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut look = interval(CHECK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = end.cancelled() => return self.video.finish().await,
                notice = notices.recv() => match notice {
                    Some(notice) => self.heed(notice).await?,
                    None => return Err(text(CdpError::Closed)),
                },
                _ = tick.tick() => self.tick().await?,
                _ = look.tick() => self.look().await?,
            }
        }
    }

    async fn heed(&mut self, notice: Notice) -> Result<(), String> {
        let current = self.current.as_ref();
        match notice.method.as_str() {
            "Page.screencastFrame" if notice.session.as_deref() == current.map(|current| current.session.as_str()) => {
                if let Some(jpeg) = notice.params["data"].as_str().and_then(|data| STANDARD.decode(data).ok()) {
                    self.video.take(jpeg);
                }
                self.received = Instant::now();
                self.unanswered = Some(notice.params["sessionId"].clone());
            }
            // A page that opens comes to the front; it is looked once it is there.
            "Target.targetCreated" if notice.params["targetInfo"]["type"] == "page" => self.look().await?,
            "Target.targetDestroyed" if current.is_some_and(|c| notice.params["targetId"] == c.target.as_str()) => {
                self.current = None;
                self.look().await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), String> {
        if self.video.fresh || self.video.written.is_some_and(|written| written.elapsed() >= REPEAT) {
            self.video.write().await?;
        }
        let (Some(current), Some(number)) = (&self.current, self.unanswered.take()) else { return Ok(()) };
        let answer = json!({ "sessionId": number });
        self.cdp.report(Some(&current.session), "Page.screencastFrameAck", answer).await.map_err(text)
    }

    /// Follows the page in front.
    async fn look(&mut self) -> Result<(), String> {
        let Some(live) = self.core.ready() else { return Err(text(CdpError::Closed)) };
        // A page that hangs says nothing of itself: what was followed stays.
        let Ok(Ok(target)) = timeout(CHECK_INTERVAL, live.browser.front_target()).await else { return Ok(()) };
        match &self.current {
            Some(current) if current.target == target => {
                if self.received.elapsed() >= RENEW {
                    self.received = Instant::now();
                    return self.cast().await;
                }
                return Ok(());
            }
            Some(current) => {
                let session = json!({ "sessionId": current.session });
                self.cdp.report(None, "Target.detachFromTarget", session).await.map_err(text)?;
            }
            None => {}
        }
        let attach = json!({ "targetId": target, "flatten": true });
        match self.cdp.call(None, "Target.attachToTarget", attach, TIMEOUT).await {
            Ok(answer) => {
                let session = answer["sessionId"].as_str().unwrap_or_default().to_owned();
                self.current = Some(Current { target, session });
                self.unanswered = None;
                self.cast().await
            }
            // Closed in between.
            Err(CdpError::Refused { .. }) => Ok(()),
            Err(error) => Err(text(error)),
        }
    }

    async fn cast(&self) -> Result<(), String> {
        let Some(current) = &self.current else { return Ok(()) };
        let (width, height) = self.size;
        let how = json!({ "format": "jpeg", "quality": QUALITY, "maxWidth": width, "maxHeight": height });
        self.cdp.report(Some(&current.session), "Page.startScreencast", how).await.map_err(text)
    }
}

/// The pipe, and the last picture.
struct Video {
    to: ChildStdin,
    framerate: u32,
    began: Instant,
    last: Vec<u8>,
    fresh: bool,
    written: Option<Instant>,
}

impl Video {
    fn take(&mut self, jpeg: Vec<u8>) {
        self.last = jpeg;
        self.fresh = true;
    }

    /// Writes the last picture for the last time. ffmpeg shows it as long as the ones before, at a guess from three of them: as there
    /// are three at this time, not a moment longer.
    async fn finish(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            self.write().await?;
        }
        Ok(())
    }

    /// Writes the last picture with the time that it is now.
    async fn write(&mut self) -> Result<(), String> {
        let Some((width, height)) = jpeg_size(&self.last) else { return Ok(()) };
        let head = match self.written {
            Some(_) => Vec::new(),
            None => {
                self.began = Instant::now();
                matroska::head(width, height, self.framerate)
            }
        };
        let at = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = matroska::before_picture(at, self.last.len());
        self.written = Some(Instant::now());
        self.fresh = false;
        let write = async {
            for part in [&head, &before, &self.last] {
                self.to.write_all(part).await?;
            }
            self.to.flush().await
        };
        match timeout(STALL, write).await {
            Ok(written) => written.map_err(|error| format!("ffmpeg takes no more pictures: {error}")),
            Err(_) => Err(format!("ffmpeg took no picture for {} s", STALL.as_secs())),
        }
    }
}

/// Width and height that a JPEG claims, or nothing where the bytes are none.
fn jpeg_size(jpeg: &[u8]) -> Option<(u32, u32)> {
    let mut rest = jpeg.strip_prefix(&[0xFF, 0xD8])?;
    loop {
        let [0xFF, marker, high, low, ..] = *rest else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        // The frame's own head: any of them but the tables that have numbers in between.
        if matches!(marker, 0xC0..=0xCF) && !matches!(marker, 0xC4 | 0xC8 | 0xCC) {
            let side = |at: usize| Some(u32::from(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?])));
            return Some((side(7)?, side(5)?));
        }
        rest = rest.get(2 + length..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_jpeg_is_found_behind_what_stands_before_it() {
        let jpeg =
            [&[0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 1, 2, 0xFF, 0xC4, 0, 2, 0xFF, 0xC0, 0, 17, 8][..], &[2, 88, 3, 32, 3]]
                .concat();
        assert_eq!(jpeg_size(&jpeg), Some((800, 600)));
        for bad in [&b""[..], b"GIF89a", &[0xFF, 0xD8, 0xFF, 0xE0, 0, 0], &jpeg[..18]] {
            assert_eq!(jpeg_size(bad), None);
        }
    }
}
