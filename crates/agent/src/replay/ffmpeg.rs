//! ffmpeg, which encodes and joins videos.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

/// The timeout for ffmpeg to complete a video.
const FINISH_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout of joining the parts of a video of the largest size.
const JOIN_TIMEOUT: Duration = Duration::from_secs(300);
/// The maximum number of buffered bytes of ffmpeg's error output.
const MAX_ERROR_BYTES: usize = 600;
/// The maximum side of a video that players can be expected to play, in pixels.
const MAX_SIDE: u32 = 3840;
/// The minimum side in pixels: the encoder works in blocks of this size, and smaller frames are padded.
const MIN_SIDE: u32 = 16;
/// The largest fragment of a video. ffmpeg holds a fragment in memory until it is complete, so that this is also how
/// far the size of the file lags behind.
const MAX_FRAGMENT_BYTES: u32 = 1 << 20;

/// The size of a video, in pixels. Both sides are even, because colours are stored for blocks of two by two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Size {
    /// Returns the size of the video of frames of this size, scaled down if players could not play it.
    pub(super) fn of(width: u32, height: u32) -> Self {
        let longest = width.max(height).max(MAX_SIDE);
        let side = |side: u32| {
            let scaled = u64::from(side) * u64::from(MAX_SIDE) / u64::from(longest);
            u32::try_from(scaled).unwrap_or(MAX_SIDE).max(MIN_SIDE).next_multiple_of(2)
        };
        Self { width: side(width), height: side(height) }
    }
}

/// The source of the frames.
#[derive(Debug)]
pub(super) enum Source {
    /// An X display, from its upper left corner, with the cursor.
    Display { name: String, width: u32, height: u32 },
    /// JPEGs with their times, on the standard input of ffmpeg.
    Frames,
}

/// The parameters of an encoding.
#[derive(Debug)]
pub(super) struct Encoding {
    pub(super) program: PathBuf,
    pub(super) source: Source,
    pub(super) framerate: u32,
    pub(super) size: Size,
    /// The size of the file at which ffmpeg ends by itself.
    pub(super) max_bytes: u64,
    pub(super) to: PathBuf,
}

/// A running ffmpeg. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Ffmpeg {
    child: Child,
    errors: Arc<Mutex<Vec<u8>>>,
    /// The standard input of ffmpeg, where the letter `q` ends the encoding of a display.
    stdin: Option<ChildStdin>,
}

impl Ffmpeg {
    /// Starts an encoding.
    pub(super) fn start(encoding: &Encoding) -> Result<Self, String> {
        let mut command = command(&encoding.program);
        let rate = encoding.framerate.to_string();
        match &encoding.source {
            Source::Display { name, width, height } => {
                command.args(["-f", "x11grab", "-draw_mouse", "1", "-framerate", &rate]);
                command.args(["-video_size", &format!("{width}x{height}"), "-i", name]);
            }
            Source::Frames => {
                // The format is known, so that no data is probed before the start.
                command.args(["-probesize", "32", "-analyzeduration", "0", "-f", "matroska", "-i", "pipe:0"]);
            }
        }
        let Size { width, height } = encoding.size;
        let fit = format!(
            "scale={width}:{height}:force_original_aspect_ratio=decrease,pad={width}:{height}:(ow-iw)/2:(oh-ih)/2,\
             setsar=1,format=yuv420p"
        );
        command.args(["-vf", &fit, "-fps_mode", "cfr", "-r", &rate, "-an", "-c:v", "libx264", "-preset", "ultrafast"]);
        command.args(["-threads", "1", "-crf", "26", "-g", &(encoding.framerate * 2).to_string()]);
        // A fragment at least every two seconds, so that the written part can be played after a crash.
        command.args(["-f", "mp4", "-movflags", "+frag_keyframe+empty_moov+default_base_moof", "-flush_packets", "1"]);
        command.args(["-frag_size", &MAX_FRAGMENT_BYTES.to_string(), "-fs", &encoding.max_bytes.to_string()]);
        command.arg("-y").arg(&encoding.to).stdin(Stdio::piped());
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Result<Self, String> {
        let mut child = command.spawn().map_err(|error| format!("ffmpeg could not be started: {error}"))?;
        let errors = Arc::default();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(read_errors(stderr, Arc::clone(&errors)));
        }
        let stdin = child.stdin.take();
        Ok(Self { child, errors, stdin })
    }

    /// Returns the process id of ffmpeg while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Takes the input for frames; closing it ends the video.
    pub(super) fn frame_input(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Waits for the end of ffmpeg and returns the reason of a failure.
    pub(super) async fn ended(&mut self) -> Result<(), String> {
        let status = self.child.wait().await.map_err(|error| error.to_string())?;
        self.check_status(status).await
    }

    /// Ends the video and waits until it is written completely.
    pub(super) async fn finish(mut self) -> Result<(), String> {
        if let Some(mut stdin) = self.stdin.take() {
            // If ffmpeg has ended already, its exit status contains the reason.
            drop(stdin.write_all(b"q").await);
        }
        match tokio::time::timeout(FINISH_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) => self.check_status(status).await,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("ffmpeg did not end within {} s", FINISH_TIMEOUT.as_secs())),
        }
    }

    async fn check_status(&self, status: ExitStatus) -> Result<(), String> {
        if status.success() {
            return Ok(());
        }
        // The last error output may not be read yet.
        tokio::task::yield_now().await;
        let errors = self.errors.lock();
        let text = String::from_utf8_lossy(&errors).trim().replace('\n', "; ");
        Err(format!("ffmpeg ended: {status}{}{text}", if text.is_empty() { "" } else { "; " }))
    }
}

/// Joins `parts` in order to one file with its index at the beginning, without encoding again.
pub(super) async fn join(program: &Path, parts: &[PathBuf], to: &Path) -> Result<(), String> {
    let mut command = command(program);
    let list = to.with_extension("txt");
    match parts {
        [one] => drop(command.arg("-i").arg(one)),
        several => {
            let lines: String = several.iter().map(|part| format!("file '{}'\n", part.display())).collect();
            std::fs::write(&list, lines).map_err(|error| error.to_string())?;
            command.args(["-f", "concat", "-safe", "0", "-i"]).arg(&list);
        }
    }
    command.args(["-c", "copy", "-movflags", "+faststart", "-f", "mp4", "-y"]).arg(to).stdin(Stdio::null());
    let mut copying = Ffmpeg::spawn(command)?;
    let ended = tokio::time::timeout(JOIN_TIMEOUT, copying.ended()).await;
    drop(std::fs::remove_file(&list));
    ended.map_err(|_| format!("the video was not joined within {} s", JOIN_TIMEOUT.as_secs()))?
}

/// Creates a command with low priority that prints only errors.
fn command(program: &Path) -> Command {
    let mut command = Command::new("/usr/bin/nice");
    command.args(["-n", "10"]).arg(program).args(["-hide_banner", "-loglevel", "error", "-nostats"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn read_errors(mut stderr: ChildStderr, errors: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 512];
    while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
        let mut errors = errors.lock();
        errors.extend_from_slice(&buffer[..length]);
        let surplus = errors.len().saturating_sub(MAX_ERROR_BYTES);
        errors.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_video_is_as_large_as_its_pictures_even_and_playable() {
        let size = |width, height| (Size::of(width, height).width, Size::of(width, height).height);
        assert_eq!(size(1920, 1080), (1920, 1080));
        assert_eq!(size(901, 703), (902, 704));
        assert_eq!(size(1, 5), (16, 16));
        assert_eq!(size(7680, 4320), (3840, 2160));
        assert_eq!(size(16_384, 1), (3840, 16));
    }
}
