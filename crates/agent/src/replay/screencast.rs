//! The frames of the page in front, for a browser without a display.

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
use crate::browser::is_page_of_caller;
use crate::browser_handle::BrowserHandle;
use crate::cdp::{Cdp, CdpError, Notice};

/// The quality of the JPEGs, of 100. ffmpeg compresses them again.
const QUALITY: u8 = 85;
/// The timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(5);
/// After this time the last frame is repeated, which bounds the delay of the video.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which the page in front is determined.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// After this time without a frame the screencast of a page is started again.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum time for which the pipe may be full.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Writes frames of the page in front to `to` until `end`: at most `framerate` per second, none larger than `size`.
pub(super) async fn pump(
    browser: BrowserHandle,
    framerate: u32,
    size: (u32, u32),
    to: ChildStdin,
    end: CancellationToken,
) -> Result<(), String> {
    let (cdp, notices) = Cdp::connect_within(&browser.endpoint(), TIMEOUT).await.map_err(text)?;
    cdp.call(None, "Target.setDiscoverTargets", json!({ "discover": true }), TIMEOUT).await.map_err(text)?;
    let video =
        FrameWriter { to, framerate, started_at: Instant::now(), frame: Vec::new(), is_new: false, written_at: None };
    let mut cast =
        Screencast { browser, cdp, size, current: None, unacknowledged: None, received_at: Instant::now(), video };
    cast.run(notices, framerate, end).await
}

fn text(error: CdpError) -> String {
    format!("the pictures of the page stopped: {error}")
}

/// The followed page.
struct Current {
    target: String,
    session: String,
}

struct Screencast {
    browser: BrowserHandle,
    cdp: Cdp,
    size: (u32, u32),
    current: Option<Current>,
    /// The id of the frame to acknowledge at the next tick. The browser sends the next frame after that.
    unacknowledged: Option<Value>,
    received_at: Instant,
    video: FrameWriter,
}

impl Screencast {
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
                    Some(notice) => self.handle(notice).await?,
                    None => return Err(text(CdpError::Closed)),
                },
                _ = tick.tick() => self.tick().await?,
                _ = look.tick() => self.follow_front().await?,
            }
        }
    }

    async fn handle(&mut self, notice: Notice) -> Result<(), String> {
        let current = self.current.as_ref();
        match notice.method.as_str() {
            "Page.screencastFrame" if notice.session.as_deref() == current.map(|current| current.session.as_str()) => {
                if let Some(jpeg) = notice.params["data"].as_str().and_then(|data| STANDARD.decode(data).ok()) {
                    self.video.replace(jpeg);
                }
                self.received_at = Instant::now();
                self.unacknowledged = Some(notice.params["sessionId"].clone());
            }
            // A new page comes to the front.
            "Target.targetCreated" if is_page_of_caller(&notice.params["targetInfo"]) => self.follow_front().await?,
            "Target.targetDestroyed" if current.is_some_and(|c| notice.params["targetId"] == c.target.as_str()) => {
                self.current = None;
                self.follow_front().await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), String> {
        if self.video.is_new || self.video.written_at.is_some_and(|at| at.elapsed() >= REPEAT_INTERVAL) {
            self.video.write().await?;
        }
        let (Some(current), Some(number)) = (&self.current, self.unacknowledged.take()) else { return Ok(()) };
        let answer = json!({ "sessionId": number });
        self.cdp.send(Some(&current.session), "Page.screencastFrameAck", answer).await.map_err(text)
    }

    /// Follows the page in front.
    async fn follow_front(&mut self) -> Result<(), String> {
        let Some(live) = self.browser.ready() else { return Err(text(CdpError::Closed)) };
        // A page that hangs does not answer: the current page stays.
        let Ok(Ok(target)) = timeout(CHECK_INTERVAL, live.browser.front_target()).await else { return Ok(()) };
        match &self.current {
            Some(current) if current.target == target => {
                if self.received_at.elapsed() >= RENEW_INTERVAL {
                    self.received_at = Instant::now();
                    return self.start_cast().await;
                }
                return Ok(());
            }
            Some(current) => {
                let session = json!({ "sessionId": current.session });
                self.cdp.send(None, "Target.detachFromTarget", session).await.map_err(text)?;
            }
            None => {}
        }
        match self.cdp.attach(&target, TIMEOUT).await {
            Ok(session) => {
                self.current = Some(Current { target, session });
                self.unacknowledged = None;
                self.start_cast().await
            }
            // The page was closed meanwhile.
            Err(CdpError::Refused { .. }) => Ok(()),
            Err(error) => Err(text(error)),
        }
    }

    async fn start_cast(&self) -> Result<(), String> {
        let Some(current) = &self.current else { return Ok(()) };
        let (width, height) = self.size;
        let how = json!({ "format": "jpeg", "quality": QUALITY, "maxWidth": width, "maxHeight": height });
        self.cdp.send(Some(&current.session), "Page.startScreencast", how).await.map_err(text)
    }
}

/// Writes frames to the pipe.
struct FrameWriter {
    to: ChildStdin,
    framerate: u32,
    started_at: Instant,
    frame: Vec<u8>,
    /// True if the last frame was not written yet.
    is_new: bool,
    written_at: Option<Instant>,
}

impl FrameWriter {
    fn replace(&mut self, jpeg: Vec<u8>) {
        self.frame = jpeg;
        self.is_new = true;
    }

    /// Writes the last frame three times. ffmpeg derives the duration of the last frame from three frames; as these
    /// have the same time, it is shown no longer.
    async fn finish(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            self.write().await?;
        }
        Ok(())
    }

    /// Writes the last frame with the current time.
    async fn write(&mut self) -> Result<(), String> {
        let Some((width, height)) = jpeg_size(&self.frame) else { return Ok(()) };
        let head = match self.written_at {
            Some(_) => Vec::new(),
            None => {
                self.started_at = Instant::now();
                matroska::head(width, height, self.framerate)
            }
        };
        let at = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = matroska::before_picture(at, self.frame.len());
        self.written_at = Some(Instant::now());
        self.is_new = false;
        let write = async {
            for part in [&head, &before, &self.frame] {
                self.to.write_all(part).await?;
            }
            self.to.flush().await
        };
        match timeout(STALL_TIMEOUT, write).await {
            Ok(written) => written.map_err(|error| format!("ffmpeg accepts no more frames: {error}")),
            Err(_) => Err(format!("ffmpeg took no picture for {} s", STALL_TIMEOUT.as_secs())),
        }
    }
}

/// Returns the width and height of a JPEG; `None` for other bytes.
fn jpeg_size(jpeg: &[u8]) -> Option<(u32, u32)> {
    let mut rest = jpeg.strip_prefix(&[0xFF, 0xD8])?;
    loop {
        let [0xFF, marker, high, low, ..] = *rest else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        // A start of frame; the excluded markers in this range are tables.
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
