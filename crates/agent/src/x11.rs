//! The connection to the session's display: its size and its picture.
//!
//! The X server stores its picture in a file, which is read directly in a quarter of the time of a request. The server
//! draws the mouse cursor into that picture, so a picture without the cursor requests the few pixels below it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use parking_lot::Mutex;
use x11rb::connection::{Connection as _, RequestConnection as _};
use x11rb::protocol::xfixes::ConnectionExt as _;
use x11rb::protocol::xproto::{ConnectionExt as _, ImageFormat, Window};
use x11rb::protocol::xtest;
use x11rb::rust_connection::RustConnection;

use crate::display::DisplayError;
use crate::window_manager::{BrowserWindows, WindowManager};
use casement_agent_protocol::Region;

/// The directory and the name of the framebuffer file, in which the X server stores its picture.
pub(crate) const FRAMEBUFFER: (&str, &str) = ("/dev/shm", "Xvfb_screen0");
/// The bytes of a pixel: blue, green, red and one unused.
pub(crate) const PIXEL: usize = 4;
/// The bytes of the framebuffer file's header: twenty-five big-endian numbers of four bytes each.
const HEAD: usize = 100;
/// The bytes of one colour in the header's list of colours.
const COLOUR: u64 = 12;

/// The visibility of the mouse cursor in a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cursor {
    Shown,
    Hidden,
}

/// A connection that is open as long as the display runs. Every call blocks, mostly for less than a millisecond.
/// Several threads can call at once.
#[derive(Debug)]
pub(crate) struct X11 {
    pub(crate) connection: RustConnection,
    pub(crate) root: Window,
    /// The atoms `WM_PROTOCOLS` and `_NET_WM_PING`, with which windows are pinged.
    pub(crate) ping: (u32, u32),
    /// Held by whoever waits for the events of the connection.
    pub(crate) settling: Mutex<()>,
    window_manager: WindowManager,
    framebuffer: Option<Framebuffer>,
}

/// The open framebuffer file.
#[derive(Debug)]
struct Framebuffer {
    file: File,
    first: u64,
    stride: u64,
}

/// A grab of the X server: the display does not change until this is dropped.
struct Still<'x>(&'x RustConnection);

impl<'x> Still<'x> {
    fn hold(connection: &'x RustConnection) -> Result<Self, DisplayError> {
        connection.grab_server().map_err(DisplayError::x)?;
        Ok(Self(connection))
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        // The X server releases the grab itself if the connection is broken.
        drop(self.0.ungrab_server().map(|cookie| cookie.ignore_error()));
        drop(self.0.flush());
    }
}

/// A rectangle of pixels from the server, to be copied over the picture.
struct Patch {
    x: i32,
    y: i32,
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl X11 {
    /// Connects to the display `name`, which is new, and starts its window manager.
    pub(crate) fn connect(name: &str) -> Result<Self, DisplayError> {
        let (connection, screen) = RustConnection::connect(Some(name)).map_err(DisplayError::x)?;
        let root = connection.setup().roots.get(screen).ok_or_else(|| DisplayError::x("no screen"))?.root;
        for extension in [xtest::X11_EXTENSION_NAME, x11rb::protocol::xfixes::X11_EXTENSION_NAME] {
            if connection.extension_information(extension).map_err(DisplayError::x)?.is_none() {
                return Err(DisplayError::x(format_args!("the X server lacks {extension}")));
            }
        }
        connection.xfixes_query_version(5, 0).map_err(DisplayError::x)?.reply().map_err(DisplayError::x)?;
        let word = |name: &[u8]| connection.intern_atom(false, name).map_err(DisplayError::x);
        let (protocols, ping) = (word(b"WM_PROTOCOLS")?, word(b"_NET_WM_PING")?);
        let ping = (protocols.reply().map_err(DisplayError::x)?.atom, ping.reply().map_err(DisplayError::x)?.atom);
        let framebuffer = Framebuffer::open(&Path::new(FRAMEBUFFER.0).join(FRAMEBUFFER.1));
        if framebuffer.is_none() {
            tracing::warn!("the framebuffer file is not usable: every picture is requested from the X server");
        }
        let window_manager = WindowManager::start(name)?;
        Ok(Self { connection, root, ping, settling: Mutex::default(), window_manager, framebuffer })
    }

    /// Decides whether windows with tabs fill the display from now on, whatever size they ask for.
    pub(crate) fn fill(&self, filling: bool) {
        self.window_manager.fill(filling);
    }

    /// Returns the browser's windows.
    pub(crate) fn browser_windows(&self) -> BrowserWindows {
        self.window_manager.browser_windows()
    }

    /// Returns once the window manager has acted on everything that happened on the display before.
    pub(crate) fn settle_windows(&self) -> Result<(), DisplayError> {
        Ok(self.window_manager.settle(&self.connection)?)
    }

    /// Returns the width and height of the display, in pixels.
    pub(crate) fn size(&self) -> Result<(u32, u32), DisplayError> {
        let geometry =
            self.connection.get_geometry(self.root).map_err(DisplayError::x)?.reply().map_err(DisplayError::x)?;
        Ok((u32::from(geometry.width), u32::from(geometry.height)))
    }

    /// Calls `each` with every row of `region`, from the top: for each pixel blue, green, red and one unused byte. The
    /// region must lie within the display.
    pub(crate) fn rows(&self, region: Region, cursor: Cursor, mut each: impl FnMut(&[u8])) -> Result<(), DisplayError> {
        let width = usize::try_from(region.width).map_err(DisplayError::x)?;
        let Some(framebuffer) = &self.framebuffer else {
            let whole = self.ask(region)?;
            whole.chunks_exact(width * PIXEL).take(region.height as usize).for_each(each);
            return Ok(());
        };
        let (_still, patch) = match cursor {
            Cursor::Shown => (None, None),
            // The cursor must not move between reading the pixels below it and reading the picture.
            Cursor::Hidden => (Some(Still::hold(&self.connection)?), self.below_cursor(region)?),
        };
        let mut row = vec![0; width * PIXEL];
        for y in region.y..region.y + region.height {
            framebuffer.row(region.x, y, &mut row)?;
            if let Some(patch) = &patch {
                patch.lay_over(&mut row, region.x, y);
            }
            each(&row);
        }
        Ok(())
    }

    /// Replaces `pixels` by the pixels of `region`, in the format of [`rows`](Self::rows).
    pub(crate) fn capture(&self, region: Region, cursor: Cursor, pixels: &mut Vec<u8>) -> Result<(), DisplayError> {
        pixels.clear();
        pixels.reserve(region.width as usize * region.height as usize * PIXEL);
        self.rows(region, cursor, |row| pixels.extend_from_slice(row))
    }

    /// Requests the pixels of `region` from the server, without the cursor.
    fn ask(&self, region: Region) -> Result<Vec<u8>, DisplayError> {
        let side = |value: u32| u16::try_from(value).map_err(DisplayError::x);
        let edge = |value: u32| i16::try_from(value).map_err(DisplayError::x);
        let (x, y, width, height) = (edge(region.x)?, edge(region.y)?, side(region.width)?, side(region.height)?);
        let requested = self
            .connection
            .get_image(ImageFormat::Z_PIXMAP, self.root, x, y, width, height, u32::MAX)
            .map_err(DisplayError::x)?;
        Ok(requested.reply().map_err(DisplayError::x)?.data)
    }

    /// Returns the pixels of `region` that the cursor covers; `None` if it covers none.
    fn below_cursor(&self, region: Region) -> Result<Option<Patch>, DisplayError> {
        let requested = self.connection.xfixes_get_cursor_image().map_err(DisplayError::x)?;
        // The server refuses the request if there is no cursor.
        let Ok(cursor) = requested.reply() else { return Ok(None) };
        let left = i64::from(cursor.x) - i64::from(cursor.xhot);
        let top = i64::from(cursor.y) - i64::from(cursor.yhot);
        let across = overlap(left, cursor.width, region.x, region.width);
        let down = overlap(top, cursor.height, region.y, region.height);
        let (Some((x, width)), Some((y, height))) = (across, down) else { return Ok(None) };
        let pixels = self.ask(Region { x, y, width, height })?;
        let place = |value: u32| i32::try_from(value).map_err(DisplayError::x);
        Ok(Some(Patch { x: place(x)?, y: place(y)?, width: width as usize, height: height as usize, pixels }))
    }
}

/// Returns the start and the length of the intersection of `[start, start + length)` and `[from, from + whole)`.
fn overlap(start: i64, length: u16, from: u32, whole: u32) -> Option<(u32, u32)> {
    let first = start.max(i64::from(from));
    let end = (start + i64::from(length)).min(i64::from(from) + i64::from(whole));
    let length = u32::try_from(end - first).ok().filter(|length| *length > 0)?;
    Some((u32::try_from(first).ok()?, length))
}

impl Patch {
    fn lay_over(&self, row: &mut [u8], left: u32, y: u32) {
        let line = i64::from(y) - i64::from(self.y);
        let start = i64::from(self.x) - i64::from(left);
        let (Ok(line), Ok(start)) = (usize::try_from(line), usize::try_from(start)) else { return };
        if line >= self.height {
            return;
        }
        let length = self.width * PIXEL;
        let from = self.pixels.get(line * length..(line + 1) * length);
        let to = row.get_mut(start * PIXEL..start * PIXEL + length);
        if let (Some(from), Some(to)) = (from, to) {
            to.copy_from_slice(from);
        }
    }
}

impl Framebuffer {
    /// Opens the framebuffer file; `None` if it is missing or its pixels have another format.
    fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0).ok()?;
        let (numbers, _) = head.as_chunks::<4>();
        let number = |index: usize| numbers.get(index).copied().map_or(0, u32::from_be_bytes);
        let (head_length, byte_order, bits, stride, colours) =
            (number(0), number(7), number(11), number(12), number(19));
        let first = u64::from(head_length) + u64::from(colours) * COLOUR;
        (byte_order == 0 && bits == 32).then_some(Self { file, first, stride: u64::from(stride) })
    }

    fn row(&self, x: u32, y: u32, row: &mut [u8]) -> Result<(), DisplayError> {
        let place = self.first + u64::from(y) * self.stride + u64::from(x) * PIXEL as u64;
        self.file.read_exact_at(row, place).map_err(DisplayError::x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cursor_covers_is_cut_to_the_region() {
        assert_eq!(overlap(-3, 10, 0, 100), Some((0, 7)));
        assert_eq!(overlap(95, 10, 0, 100), Some((95, 5)));
        assert_eq!(overlap(20, 10, 25, 2), Some((25, 2)));
        assert_eq!(overlap(10, 10, 20, 5), None);
        assert_eq!(overlap(-20, 10, 0, 5), None);
    }

    #[test]
    fn a_patch_changes_its_own_pixels_only() {
        let patch = Patch { x: 11, y: 5, width: 1, height: 1, pixels: vec![9; 4] };
        let mut row = vec![0; 12];
        patch.lay_over(&mut row, 10, 4);
        patch.lay_over(&mut row, 10, 6);
        assert_eq!(row, [0; 12]);
        patch.lay_over(&mut row, 10, 5);
        assert_eq!(row, [0, 0, 0, 0, 9, 9, 9, 9, 0, 0, 0, 0]);
    }
}
