//! The Enter key in Chromium's dialogs for files.
//!
//! Chromium makes Cancel the default button of these dialogs, so that a page cannot have a person hold Enter and
//! thereby choose a file. Enter would therefore discard a path that was typed. The window manager takes the key and
//! clicks the other button. Only its place is known: the lower right corner.

use std::time::{Duration, Instant};

use x11rb::connection::Connection as _;
use x11rb::protocol::xproto::{
    BUTTON_PRESS_EVENT, BUTTON_RELEASE_EVENT, ConnectionExt as _, EventMask, GrabMode, GrabStatus, KEY_PRESS_EVENT,
    KEY_RELEASE_EVENT, KeyButMask, MOTION_NOTIFY_EVENT, ModMask, Window,
};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;

use super::hints::Result;
use super::place::Place;

/// The symbols of the Enter keys: that of the letters, and that of the digits.
const ENTER: [u32; 2] = [0xff0d, 0xff8d];
/// The symbol of the arrow key to the right.
const RIGHT: [u32; 1] = [0xff53];
/// The distance of the button's inside from the right and the lower edge of the dialog, in pixels.
const BUTTON: (i32, i32) = (30, 22);

/// The timeout for the list of suggestions to close, and the interval of the checks: no event reports it.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
const RETRY_BACKOFF: Duration = Duration::from_millis(5);

/// Takes the Enter keys of a dialog from its program.
pub(super) fn take_enter(connection: &RustConnection, dialog: Window) -> Result<()> {
    for code in codes(connection, &ENTER)? {
        connection.grab_key(false, dialog, ModMask::ANY, code, GrabMode::ASYNC, GrabMode::ASYNC)?;
    }
    Ok(())
}

/// Returns the numbers of the keys with these symbols.
fn codes(connection: &RustConnection, wanted: &[u32]) -> Result<Vec<u8>> {
    let (first, last) = (connection.setup().min_keycode, connection.setup().max_keycode);
    let mapping = connection.get_keyboard_mapping(first, last - first + 1)?.reply()?;
    let keys = (first..=last).zip(mapping.keysyms.chunks(usize::from(mapping.keysyms_per_keycode).max(1)));
    let found = keys.filter(|(_, symbols)| symbols.first().is_some_and(|symbol| wanted.contains(symbol)));
    Ok(found.map(|(code, _)| code).collect())
}

/// Clicks the button that accepts, and moves the mouse back. Does nothing while a button of the mouse is pressed.
pub(super) fn accept(connection: &RustConnection, root: Window, dialog: Place) -> Result<()> {
    // The release of the key goes to the program again.
    connection.ungrab_keyboard(x11rb::CURRENT_TIME)?;
    let mouse = connection.query_pointer(root)?.reply()?;
    let pressed = KeyButMask::BUTTON1 | KeyButMask::BUTTON2 | KeyButMask::BUTTON3;
    if mouse.mask.intersects(pressed) {
        return Ok(());
    }
    let fake = |kind: u8, detail: u8, (x, y): (i16, i16)| -> Result<()> {
        Ok(connection.xtest_fake_input(kind, detail, x11rb::CURRENT_TIME, root, x, y, 0).map(drop)?)
    };
    if is_mouse_grabbed(connection, root)? {
        // The list of suggestions below the field would take the click. This key closes it and changes nothing else.
        for code in codes(connection, &RIGHT)?.into_iter().take(1) {
            fake(KEY_PRESS_EVENT, code, (0, 0))?;
            fake(KEY_RELEASE_EVENT, code, (0, 0))?;
        }
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while is_mouse_grabbed(connection, root)? && Instant::now() < deadline {
            std::thread::sleep(RETRY_BACKOFF);
        }
    }
    let edge = |edge: i32| i16::try_from(edge).unwrap_or(0);
    fake(
        MOTION_NOTIFY_EVENT,
        0,
        (edge(dialog.x + dialog.width - BUTTON.0), edge(dialog.y + dialog.height - BUTTON.1)),
    )?;
    fake(BUTTON_PRESS_EVENT, 1, (0, 0))?;
    fake(BUTTON_RELEASE_EVENT, 1, (0, 0))?;
    fake(MOTION_NOTIFY_EVENT, 0, (mouse.root_x, mouse.root_y))
}

/// Returns true if a program has grabbed the mouse.
fn is_mouse_grabbed(connection: &RustConnection, root: Window) -> Result<bool> {
    let (mode, none) = (GrabMode::ASYNC, EventMask::NO_EVENT);
    let tried =
        connection.grab_pointer(false, root, none, mode, mode, x11rb::NONE, x11rb::NONE, x11rb::CURRENT_TIME)?;
    if tried.reply()?.status == GrabStatus::SUCCESS {
        connection.ungrab_pointer(x11rb::CURRENT_TIME)?;
        return Ok(false);
    }
    Ok(true)
}
