//! The one connection to the session's display: its size, and what it shows.
//!
//! The X server keeps its picture in a file, which is read instead of asked for: that takes a quarter of the time. The server draws
//! the mouse cursor into that picture, so one without the cursor asks for the few pixels below it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use x11rb::connection::{Connection as _, RequestConnection as _};
use x11rb::protocol::xfixes::ConnectionExt as _;
use x11rb::protocol::xproto::{ConnectionExt as _, ImageFormat, Window};
use x11rb::protocol::xtest;
use x11rb::rust_connection::RustConnection;

use crate::display::DisplayError;
use casement_agent_protocol::Region;

/// Where the X server keeps its picture, and under which name.
pub(crate) const FRAMEBUFFER: (&str, &str) = ("/dev/shm", "Xvfb_screen0");
/// Bytes of a pixel: blue, green, red and one unused.
pub(crate) const PIXEL: usize = 4;
/// The beginning of the picture's description, twenty-five numbers of four bytes each, most significant first.
const HEAD: usize = 100;
/// Bytes of one colour in the description.
const COLOUR: u64 = 12;

/// Whether a picture shows the mouse cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cursor {
    Shown,
    Hidden,
}

/// A connection that stays open as long as the display does. Every call here blocks, for less than a millisecond mostly; several
/// threads can call at once.
#[derive(Debug)]
pub(crate) struct X11 {
    pub(crate) connection: RustConnection,
    pub(crate) root: Window,
    /// The words by which a window's program is asked for a sign of life: of all such words, and of this one.
    pub(crate) ping: (u32, u32),
    framebuffer: Option<Framebuffer>,
}

/// The file in which the X server keeps its picture.
#[derive(Debug)]
struct Framebuffer {
    file: File,
    first: u64,
    stride: u64,
}

/// The display keeps still until this is dropped.
struct Still<'x>(&'x RustConnection);

impl<'x> Still<'x> {
    fn hold(connection: &'x RustConnection) -> Result<Self, DisplayError> {
        connection.grab_server().map_err(DisplayError::x)?;
        Ok(Self(connection))
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        // Without a connection there is nothing that could be held.
        drop(self.0.ungrab_server().map(|cookie| cookie.ignore_error()));
        drop(self.0.flush());
    }
}

/// A rectangle of pixels as the server sends it, to be laid over the picture.
struct Patch {
    x: i32,
    y: i32,
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl X11 {
    /// Connects to the display `name`.
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
            tracing::warn!("the display's picture is not where it should be: every picture is asked for");
        }
        Ok(Self { connection, root, ping, framebuffer })
    }

    /// Width and height of the display, in pixels.
    pub(crate) fn size(&self) -> Result<(u32, u32), DisplayError> {
        let geometry =
            self.connection.get_geometry(self.root).map_err(DisplayError::x)?.reply().map_err(DisplayError::x)?;
        Ok((u32::from(geometry.width), u32::from(geometry.height)))
    }

    /// Hands the rows of `region`, from above, to `each`: for every pixel blue, green, red and one byte without meaning. The region
    /// must lie within the display.
    pub(crate) fn rows(&self, region: Region, cursor: Cursor, mut each: impl FnMut(&[u8])) -> Result<(), DisplayError> {
        let width = usize::try_from(region.width).map_err(DisplayError::x)?;
        let Some(framebuffer) = &self.framebuffer else {
            let whole = self.ask(region)?;
            whole.chunks_exact(width * PIXEL).take(region.height as usize).for_each(each);
            return Ok(());
        };
        let (_still, patch) = match cursor {
            Cursor::Shown => (None, None),
            // The cursor must not move between the picture and what is below the cursor.
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

    /// What `region` shows, as [`rows`](Self::rows) gives it, in place of what `pixels` held.
    pub(crate) fn capture(&self, region: Region, cursor: Cursor, pixels: &mut Vec<u8>) -> Result<(), DisplayError> {
        pixels.clear();
        pixels.reserve(region.width as usize * region.height as usize * PIXEL);
        self.rows(region, cursor, |row| pixels.extend_from_slice(row))
    }

    /// The pixels of `region` from the server, without the cursor.
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

    /// What the cursor covers of `region`, if it covers anything.
    fn below_cursor(&self, region: Region) -> Result<Option<Patch>, DisplayError> {
        let requested = self.connection.xfixes_get_cursor_image().map_err(DisplayError::x)?;
        // The server refuses where there is no cursor.
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

/// Where `[start, start + length)` and `[from, from + whole)` meet: the first of it and how much.
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
    /// The file, if it is there and holds pixels as we read them.
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
