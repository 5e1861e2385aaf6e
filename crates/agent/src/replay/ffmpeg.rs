//! The program that makes the film: how it is called, and how it ended.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

/// How long it may take to write what it has when it is told to end.
const CLOSING: Duration = Duration::from_secs(15);
/// How long joining and copying a film of the largest size may take.
const COPYING: Duration = Duration::from_secs(300);
/// What is kept of its complaints, in bytes.
const COMPLAINTS: usize = 600;
/// The longest side of a film, in pixels: what players can be expected to play.
const MAX_SIDE: u32 = 3840;
/// Smaller pictures are padded: the encoder works in blocks of this many pixels.
const MIN_SIDE: u32 = 16;

/// The size of a film, in pixels: both even, as its colours are kept for two by two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Size {
    /// The film that shows pictures of this size: as they are, or scaled down to what players can play.
    pub(super) fn of(width: u32, height: u32) -> Self {
        let longest = width.max(height).max(MAX_SIDE);
        let side = |side: u32| {
            let scaled = u64::from(side) * u64::from(MAX_SIDE) / u64::from(longest);
            u32::try_from(scaled).unwrap_or(MAX_SIDE).max(MIN_SIDE).next_multiple_of(2)
        };
        Self { width: side(width), height: side(height) }
    }
}

/// Where the pictures come from.
#[derive(Debug)]
pub(super) enum Source {
    /// An X display, from its upper left corner, the cursor included.
    Display { name: String, width: u32, height: u32 },
    /// JPEG pictures with their times, on its standard input.
    Pictures,
}

/// How a film is made.
#[derive(Debug)]
pub(super) struct Video {
    pub(super) program: PathBuf,
    pub(super) source: Source,
    pub(super) framerate: u32,
    pub(super) size: Size,
    pub(super) to: PathBuf,
}

/// The running program. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Ffmpeg {
    child: Child,
    complaints: Arc<Mutex<Vec<u8>>>,
    /// Of a display: takes the letter that ends it.
    stdin: Option<ChildStdin>,
}

impl Ffmpeg {
    /// Begins to film.
    pub(super) fn video(video: &Video) -> Result<Self, String> {
        let mut command = quiet(&video.program);
        let rate = video.framerate.to_string();
        match &video.source {
            Source::Display { name, width, height } => {
                command.args(["-f", "x11grab", "-draw_mouse", "1", "-framerate", &rate]);
                command.args(["-video_size", &format!("{width}x{height}"), "-i", name]);
            }
            Source::Pictures => {
                // Nothing is to be guessed, so nothing needs to be awaited.
                command.args(["-probesize", "32", "-analyzeduration", "0", "-f", "matroska", "-i", "pipe:0"]);
            }
        }
        let Size { width, height } = video.size;
        let fit = format!(
            "scale={width}:{height}:force_original_aspect_ratio=decrease,pad={width}:{height}:(ow-iw)/2:(oh-ih)/2,\
             setsar=1,format=yuv420p"
        );
        command.args(["-vf", &fit, "-fps_mode", "cfr", "-r", &rate, "-an", "-c:v", "libx264", "-preset", "ultrafast"]);
        command.args(["-threads", "1", "-crf", "26", "-g", &(video.framerate * 2).to_string()]);
        // A piece every two seconds at most: whatever ends this program, what was written before can be played.
        command.args(["-f", "mp4", "-movflags", "+frag_keyframe+empty_moov+default_base_moof", "-flush_packets", "1"]);
        command.arg("-y").arg(&video.to).stdin(Stdio::piped());
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Result<Self, String> {
        let mut child = command.spawn().map_err(|error| format!("ffmpeg could not be started: {error}"))?;
        let complaints = Arc::default();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(keep_complaints(stderr, Arc::clone(&complaints)));
        }
        let stdin = child.stdin.take();
        Ok(Self { child, complaints, stdin })
    }

    /// Its process, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Where pictures are written to; closing it ends the film.
    pub(super) fn pictures(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Waits for its end and says why it was not a good one.
    pub(super) async fn ended(&mut self) -> Result<(), String> {
        let status = self.child.wait().await.map_err(|error| error.to_string())?;
        self.judge(status).await
    }

    /// Ends the film, and waits until all of it is written.
    pub(super) async fn finish(mut self) -> Result<(), String> {
        if let Some(mut stdin) = self.stdin.take() {
            // Gone already: its status tells.
            drop(stdin.write_all(b"q").await);
        }
        match tokio::time::timeout(CLOSING, self.child.wait()).await {
            Ok(Ok(status)) => self.judge(status).await,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("ffmpeg did not end within {} s", CLOSING.as_secs())),
        }
    }

    async fn judge(&self, status: ExitStatus) -> Result<(), String> {
        if status.success() {
            return Ok(());
        }
        // What it wrote last may not be read yet.
        tokio::task::yield_now().await;
        let complaints = self.complaints.lock();
        let text = String::from_utf8_lossy(&complaints).trim().replace('\n', "; ");
        Err(format!("ffmpeg ended: {status}{}{text}", if text.is_empty() { "" } else { "; " }))
    }
}

/// Makes one file of `parts`, in order, whose beginning tells where everything is. What was filmed is copied as it is.
pub(super) async fn join(program: &Path, parts: &[PathBuf], to: &Path) -> Result<(), String> {
    let mut command = quiet(program);
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
    let ended = tokio::time::timeout(COPYING, copying.ended()).await;
    drop(std::fs::remove_file(&list));
    ended.map_err(|_| format!("the film was not joined within {} s", COPYING.as_secs()))?
}

/// Says nothing but errors, and gives way to everything else.
fn quiet(program: &Path) -> Command {
    let mut command = Command::new("/usr/bin/nice");
    command.args(["-n", "10"]).arg(program).args(["-hide_banner", "-loglevel", "error", "-nostats"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn keep_complaints(mut stderr: ChildStderr, buffered: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 512];
    while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
        let mut buffered = buffered.lock();
        buffered.extend_from_slice(&buffer[..length]);
        let surplus = buffered.len().saturating_sub(COMPLAINTS);
        buffered.drain(..surplus);
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
