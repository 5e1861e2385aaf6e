//! Waits until the browser has processed all input that was sent to the display.
//!
//! The window's program answers a ping after the events that it received before.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    AtomEnum, ChangeWindowAttributesAux, ClientMessageEvent, ConnectionExt as _, EventMask, MapState, Window,
};

use crate::display::DisplayError;
use crate::x11::X11;

/// The timeout of the answer to a ping.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of one poll of the connection. Short, because another thread may have read the answer from the
/// connection.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// The number of the next ping, which its answer repeats.
static NUMBER: AtomicU32 = AtomicU32::new(1);

/// Returns the visible windows, the lowest first, without menus and tooltips.
fn windows(x11: &X11) -> Result<Vec<Window>, DisplayError> {
    let tree = x11.connection.query_tree(x11.root).map_err(DisplayError::x)?.reply().map_err(DisplayError::x)?;
    let requested: Vec<_> = tree
        .children
        .into_iter()
        .map(|window| x11.connection.get_window_attributes(window).map(|cookie| (window, cookie)))
        .collect::<Result<_, _>>()
        .map_err(DisplayError::x)?;
    let mut seen = Vec::new();
    for (window, cookie) in requested {
        // A window may close between two requests.
        let Ok(attributes) = cookie.reply() else { continue };
        if !attributes.override_redirect && attributes.map_state == MapState::VIEWABLE {
            seen.push(window);
        }
    }
    Ok(seen)
}

/// Returns once the browser has processed every event that was sent before; at once if no window supports pings.
pub(crate) fn settle(x11: &X11) -> Result<(), DisplayError> {
    x11.settle_windows()?;
    // The events of the connection are for one at a time.
    let _turn = x11.settling.lock();
    let listen = |mask| -> Result<(), DisplayError> {
        let mask = ChangeWindowAttributesAux::new().event_mask(mask);
        x11.connection.change_window_attributes(x11.root, &mask).map_err(DisplayError::x).map(drop)
    };
    listen(EventMask::SUBSTRUCTURE_NOTIFY)?;
    let deadline = Instant::now() + TIMEOUT;
    let settled = loop {
        let answer = match pinged(x11)? {
            Some(window) => answered(x11, window, deadline),
            None => Ok(true),
        };
        match answer {
            // The events closed the window, as Enter closes a dialog.
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    listen(EventMask::NO_EVENT)?;
    x11.connection.flush().map_err(DisplayError::x)?;
    settled
}

/// Returns the uppermost window that supports pings.
fn pinged(x11: &X11) -> Result<Option<Window>, DisplayError> {
    let (protocols, ping) = x11.ping;
    for window in windows(x11)?.into_iter().rev() {
        let understood = x11
            .connection
            .get_property(false, window, protocols, AtomEnum::ATOM, 0, 32)
            .map_err(DisplayError::x)?
            .reply();
        if understood.is_ok_and(|list| list.value32().is_some_and(|mut atoms| atoms.any(|atom| atom == ping))) {
            return Ok(Some(window));
        }
    }
    Ok(None)
}

/// Pings a window. Returns false if it closes instead of an answer.
fn answered(x11: &X11, window: Window, deadline: Instant) -> Result<bool, DisplayError> {
    let (protocols, ping) = x11.ping;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let message = ClientMessageEvent::new(32, window, protocols, [ping, number, window, 0, 0]);
    x11.connection.send_event(false, window, EventMask::NO_EVENT, message).map_err(DisplayError::x)?;
    x11.connection.flush().map_err(DisplayError::x)?;
    loop {
        while let Some(event) = x11.connection.poll_for_event().map_err(DisplayError::x)? {
            match event {
                Event::ClientMessage(answer) if answer.window == x11.root && answer.data.as_data32()[1] == number => {
                    return Ok(true);
                }
                Event::DestroyNotify(closed) if closed.window == window => return Ok(false),
                _ => {}
            }
        }
        if Instant::now() >= deadline {
            return Err(DisplayError::Hung(TIMEOUT));
        }
        let mut waiting = [PollFd::new(x11.connection.stream(), PollFlags::IN)];
        // An interrupted poll is like one without events: the loop polls again.
        let _ = poll(&mut waiting, Some(&GLANCE));
    }
}
