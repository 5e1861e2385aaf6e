//! The X display of a session: its server, its windows and its size.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use x11rb::protocol::randr::{self, ConnectionExt as _};
use x11rb::protocol::xproto::ConnectionExt as _;
use x11rb::protocol::xproto::Window;
use x11rb::rust_connection::RustConnection;

use crate::flags;
use crate::picture::{self, PictureError};
use crate::session_log;
use crate::window_manager::WindowManagerError;
use crate::x11::{FRAMEBUFFER, X11};
use casement_agent_protocol::{Region, Viewport};

/// The timeout of the X server's start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The size that a smaller display can grow to. An X server without hardware cannot grow beyond its first size and
/// paints all of it at its start: this size covers 4K in landscape and most sizes in portrait, for about 12 ms.
const MAX_GROWTH: (u32, u32) = (3840, 2560);
/// The bound of the framebuffer file's header with its colours, in bytes.
const FRAMEBUFFER_HEAD: u64 = 8 << 10;

/// The reason why an operation on the display failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DisplayError {
    #[error("the X server could not be started: {0}")]
    Start(#[source] io::Error),
    #[error("the X server did not say its number within {} s", START_TIMEOUT.as_secs())]
    Silent,
    #[error("the X server ended before it said its number")]
    Ended,
    #[error("the X server refused: {0}")]
    X(String),
    /// The size exceeds the given width and height of the display, in pixels.
    #[error("the display of this session shows at most {0} × {1} pixels")]
    OutOfRange(u16, u16),
    #[error("no window accepted input for {} s", .0.as_secs())]
    Hung(Duration),
    #[error(transparent)]
    Picture(#[from] PictureError),
    #[error(transparent)]
    WindowManager(#[from] WindowManagerError),
}

impl DisplayError {
    pub(crate) fn x(error: impl std::fmt::Display) -> Self {
        Self::X(error.to_string())
    }
}

/// The running X server. Dropping it kills the server.
#[derive(Debug)]
pub(crate) struct Display {
    name: String,
    x11: Arc<X11>,
    server: Mutex<Child>,
    pid: Option<u32>,
}

impl Display {
    /// Starts the X server and resizes it to `viewport`.
    pub(crate) async fn start(program: &Path, viewport: Viewport) -> Result<Self, DisplayError> {
        let (width, height) = (viewport.width.max(MAX_GROWTH.0), viewport.height.max(MAX_GROWTH.1));
        let mut server = Command::new(program)
            .args(flags::xvfb_args(Path::new(FRAMEBUFFER.0), width, height))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(DisplayError::Start)?;
        if let Some(stderr) = server.stderr.take() {
            tokio::spawn(session_log::DISPLAY.fill(stderr));
        }
        let stdout = server.stdout.take().ok_or(DisplayError::Silent)?;
        let mut line = String::new();
        let mut reader = BufReader::with_capacity(64, stdout);
        let read = tokio::time::timeout(START_TIMEOUT, reader.read_line(&mut line)).await;
        let number: u32 = match read {
            Ok(Ok(0)) => return Err(DisplayError::Ended),
            Ok(Ok(_)) => line.trim().parse().map_err(|_| DisplayError::Silent)?,
            Ok(Err(error)) => return Err(DisplayError::Start(error)),
            Err(_) => return Err(DisplayError::Silent),
        };
        let name = format!(":{number}");
        let x11 = {
            let name = name.clone();
            blocking(move || X11::connect(&name)).await?
        };
        let pid = server.id();
        let display = Self { name, x11: Arc::new(x11), server: Mutex::new(server), pid };
        display.resize(viewport).await?;
        if let Err(error) = blocking(|| release_framebuffer().map_err(DisplayError::Start)).await {
            tracing::warn!(%error, "cannot release the memory of the display's largest size");
        }
        Ok(display)
    }

    /// Ends the X server and waits for its end, after which its framebuffer file may be replaced.
    pub(crate) async fn end(&self) {
        drop(self.server.lock().await.kill().await);
    }

    /// Returns the process id of the X server if it ends in time.
    pub(crate) async fn wait_for_end(&self, within: Duration) -> Option<u32> {
        let mut server = self.server.lock().await;
        tokio::time::timeout(within, server.wait()).await.ok().and(self.pid)
    }

    /// Returns the value of `DISPLAY` for programs.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Decides whether windows with tabs fill the display from now on, whatever size they ask for.
    pub(crate) fn fill(&self, filling: bool) {
        self.x11.fill(filling);
    }

    /// Resizes the display. Windows with tabs fill it, and all others stay within it.
    pub(crate) async fn resize(&self, viewport: Viewport) -> Result<(), DisplayError> {
        let x11 = self.x11();
        blocking(move || resize(&x11, viewport)).await
    }

    /// Returns the width and the height.
    pub(crate) async fn size(&self) -> Result<(u16, u16), DisplayError> {
        let x11 = self.x11();
        blocking(move || size(&x11)).await
    }

    /// Returns a PNG of `region` of the display, with window frames and without the mouse cursor.
    pub(crate) async fn capture(&self, region: Region) -> Result<Vec<u8>, DisplayError> {
        let x11 = self.x11();
        blocking(move || picture::of_display(&x11, region)).await
    }

    /// Returns the connection to the display.
    pub(crate) fn x11(&self) -> Arc<X11> {
        Arc::clone(&self.x11)
    }
}

/// Runs blocking work on a thread for blocking work.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DisplayError> + Send + 'static,
) -> Result<T, DisplayError> {
    tokio::task::spawn_blocking(work).await.map_err(DisplayError::x)?
}

/// Releases the memory of the framebuffer, which the X server has painted black in its largest size: holes read as
/// black. Later output allocates its part again.
fn release_framebuffer() -> io::Result<()> {
    let picture = std::fs::File::options().write(true).open(Path::new(FRAMEBUFFER.0).join(FRAMEBUFFER.1))?;
    let rest = picture.metadata()?.len().saturating_sub(FRAMEBUFFER_HEAD);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(&picture, flags, FRAMEBUFFER_HEAD, rest)?)
}

fn resize(x11: &X11, viewport: Viewport) -> Result<(), DisplayError> {
    let size = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    let (width, height) = (size(viewport.width), size(viewport.height));
    let (connection, root) = (&x11.connection, x11.root);
    let range =
        connection.randr_get_screen_size_range(root).map_err(DisplayError::x)?.reply().map_err(DisplayError::x)?;
    if width > range.max_width || height > range.max_height {
        return Err(DisplayError::OutOfRange(range.max_width, range.max_height));
    }
    set_mode(connection, root, width, height)?;
    // The window manager resizes the windows.
    x11.settle_windows()
}

fn size(x11: &X11) -> Result<(u16, u16), DisplayError> {
    let root = x11.connection.get_geometry(x11.root).map_err(DisplayError::x)?.reply().map_err(DisplayError::x)?;
    Ok((root.width, root.height))
}

fn set_mode(connection: &RustConnection, root: Window, width: u16, height: u16) -> Result<(), DisplayError> {
    let resources =
        connection.randr_get_screen_resources(root).map_err(DisplayError::x)?.reply().map_err(DisplayError::x)?;
    let (Some(crtc), Some(output)) = (resources.crtcs.first().copied(), resources.outputs.first().copied()) else {
        return Err(DisplayError::X("no output".to_owned()));
    };
    let mode = match resources.modes.iter().find(|mode| (mode.width, mode.height) == (width, height)) {
        Some(mode) => mode.id,
        None => new_mode(connection, root, width, height)?,
    };
    // Refused if the output has the mode already.
    connection.randr_add_output_mode(output, mode).map_err(DisplayError::x)?.ignore_error();
    let configure = |mode: u32, outputs: &[u32]| {
        let configured = connection
            .randr_set_crtc_config(crtc, 0, resources.config_timestamp, 0, 0, mode, randr::Rotation::ROTATE0, outputs)
            .map_err(DisplayError::x)?
            .reply()
            .map_err(DisplayError::x)?;
        match configured.status {
            randr::SetConfig::SUCCESS => Ok(()),
            refused => Err(DisplayError::X(format!("the display does not take its size: {refused:?}"))),
        }
    };
    // The screen must never be smaller than its output, so the output is switched off meanwhile.
    configure(0, &[])?;
    connection
        .randr_set_screen_size(root, width, height, millimetres(width), millimetres(height))
        .map_err(DisplayError::x)?
        .check()
        .map_err(DisplayError::x)?;
    configure(mode, &[output])?;
    Ok(())
}

fn new_mode(connection: &RustConnection, root: Window, width: u16, height: u16) -> Result<u32, DisplayError> {
    let name = format!("{width}x{height}");
    let info = randr::ModeInfo {
        width,
        height,
        dot_clock: (u32::from(width) * u32::from(height)).saturating_mul(60),
        htotal: width,
        vtotal: height,
        name_len: u16::try_from(name.len()).map_err(DisplayError::x)?,
        ..randr::ModeInfo::default()
    };
    let reply = connection
        .randr_create_mode(root, info, name.as_bytes())
        .map_err(DisplayError::x)?
        .reply()
        .map_err(DisplayError::x)?;
    Ok(reply.mode)
}

/// Returns the physical size at 96 dots per inch.
fn millimetres(pixels: u16) -> u32 {
    (u32::from(pixels) * 254).div_ceil(960)
}
