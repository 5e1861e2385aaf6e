//! Input for a session with a display: the mouse and the keyboard of the X server.

use std::sync::Arc;

use parking_lot::Mutex;
use x11rb::connection::Connection as _;
use x11rb::protocol::xfixes::ConnectionExt as _;
use x11rb::protocol::xproto::ConnectionExt as _;
use x11rb::protocol::xtest::ConnectionExt as _;

use super::key_sym::KeySym;
use super::keyboard::{self, Keyboard};
use super::signs::settle;
use crate::browser::Browser;
use crate::display::{DisplayError, blocking};
use crate::x11::X11;
use casement_agent_protocol::computer::{Button, Point};

const BUTTON_PRESS: u8 = 4;
const BUTTON_RELEASE: u8 = 5;
const MOTION: u8 = 6;
/// The position in an event of a button, which has no position of its own.
const HERE: (i16, i16) = (0, 0);
/// The numbers of the buttons that are the wheel: up, down, left, right.
const WHEEL: [u8; 4] = [4, 5, 6, 7];
/// The milliseconds between the clicks of a double click. Chromium treats two presses in the same millisecond as one
/// press that is reported twice, and counts neither as the second one.
const BETWEEN_CLICKS: u32 = 10;
/// The maximum number of wheel steps between two waits for the browser, so that no queue grows.
const STEPS: u32 = 50;

/// The mouse and keyboard of a display. The X server stores the position of the mouse and the pressed keys.
#[derive(Debug)]
pub(super) struct DisplayInput {
    x11: Arc<X11>,
    browser: Arc<Browser>,
    keyboard: Arc<Mutex<Keyboard>>,
    hidden: bool,
}

impl DisplayInput {
    pub(super) fn new(x11: Arc<X11>, browser: Arc<Browser>) -> Self {
        Self { x11, browser, keyboard: Arc::default(), hidden: false }
    }

    /// Runs blocking work, one piece at a time. Work that has begun is completed even if its caller disconnects.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&X11, &mut Keyboard) -> Result<T, DisplayError> + Send + 'static,
    ) -> Result<T, DisplayError> {
        let (x11, keyboard) = (Arc::clone(&self.x11), Arc::clone(&self.keyboard));
        blocking(move || {
            let done = work(&x11, &mut keyboard.lock())?;
            x11.connection.flush().map_err(DisplayError::x)?;
            Ok(done)
        })
        .await
    }

    pub(super) async fn mouse(&self) -> Result<Point, DisplayError> {
        self.with(|x11, _| {
            let pointer = x11.connection.query_pointer(x11.root).map_err(DisplayError::x)?;
            let pointer = pointer.reply().map_err(DisplayError::x)?;
            let side = |place: i16| u32::try_from(place).unwrap_or(0);
            Ok(Point { x: side(pointer.root_x), y: side(pointer.root_y) })
        })
        .await
    }

    pub(super) async fn size(&self) -> Result<(u32, u32), DisplayError> {
        self.with(|x11, _| x11.size()).await
    }

    pub(super) async fn move_to(&self, to: Point) -> Result<(), DisplayError> {
        self.with(move |x11, _| {
            let side = |place: u32| i16::try_from(place).map_err(DisplayError::x);
            fake(x11, MOTION, 0, (side(to.x)?, side(to.y)?), 0)
        })
        .await
    }

    pub(super) async fn button(&self, button: Button, down: bool) -> Result<(), DisplayError> {
        let kind = if down { BUTTON_PRESS } else { BUTTON_RELEASE };
        self.with(move |x11, _| fake(x11, kind, number(button), HERE, 0)).await
    }

    /// Clicks `times` times as one multiple click: the X server times the clicks itself, regardless of the load of the
    /// machine, and performs later events after them.
    pub(super) async fn click(&self, button: Button, times: u32) -> Result<(), DisplayError> {
        self.with(move |x11, _| {
            for earlier in 0..times {
                let wait = if earlier == 0 { 0 } else { BETWEEN_CLICKS };
                fake(x11, BUTTON_PRESS, number(button), HERE, wait)?;
                fake(x11, BUTTON_RELEASE, number(button), HERE, 0)?;
            }
            Ok(())
        })
        .await
    }

    pub(super) async fn wheel(&self, right: i32, down: i32) -> Result<(), DisplayError> {
        let [up_button, down_button, left_button, right_button] = WHEEL;
        for (steps, less, more) in [(down, up_button, down_button), (right, left_button, right_button)] {
            let button = if steps < 0 { less } else { more };
            let mut rest = steps.unsigned_abs();
            while rest > 0 {
                let now = rest.min(STEPS);
                rest -= now;
                self.with(move |x11, _| {
                    for _ in 0..now {
                        fake(x11, BUTTON_PRESS, button, HERE, 0)?;
                        fake(x11, BUTTON_RELEASE, button, HERE, 0)?;
                    }
                    settle(x11)
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Prepares the keyboard for key presses: reads its symbols, and waits until the window in front has the keyboard.
    pub(super) async fn ready_keyboard(&self) -> Result<(), DisplayError> {
        self.browser.settle_new_pages().await;
        self.with(|x11, keyboard| {
            keyboard.refresh(x11)?;
            x11.settle_windows()
        })
        .await
    }

    /// Returns true if a symbol needs Shift.
    pub(super) fn is_shifted(&self, key: KeySym) -> bool {
        let keyboard = self.keyboard.lock();
        keyboard.find(key).is_some_and(|stroke| stroke.shift)
    }

    pub(super) async fn key(&self, key: KeySym, down: bool) -> Result<(), DisplayError> {
        self.with(move |x11, keyboard| {
            let stroke = keyboard.keystroke(x11, key)?;
            if down {
                keyboard::lock_numbers(x11, key)?;
            }
            keyboard::send(x11, stroke.code, down)
        })
        .await
    }

    pub(super) async fn hold(&self, key: KeySym, down: bool) -> Result<(), DisplayError> {
        self.with(move |x11, keyboard| {
            if !down {
                let code = keyboard.let_go(x11, key)?;
                return keyboard::send(x11, code, false);
            }
            let (code, again) = keyboard.take_hold(x11, key)?;
            keyboard::lock_numbers(x11, key)?;
            if again {
                // A repeated key is released and pressed at the same moment, by which programs recognize a repetition.
                keyboard::send(x11, code, false)?;
            }
            keyboard::send(x11, code, true)
        })
        .await
    }

    pub(super) async fn write(&self, keys: Vec<KeySym>) -> Result<(), DisplayError> {
        self.with(move |x11, keyboard| keyboard.write(x11, &keys)).await
    }

    pub(super) async fn cursor(&mut self, hidden: bool) -> Result<(), DisplayError> {
        // The X server counts how often the cursor was hidden.
        if hidden != self.hidden {
            self.with(move |x11, _| {
                let sent = match hidden {
                    true => x11.connection.xfixes_hide_cursor(x11.root),
                    false => x11.connection.xfixes_show_cursor(x11.root),
                };
                sent.map_err(DisplayError::x)?.check().map_err(DisplayError::x)
            })
            .await?;
            self.hidden = hidden;
        }
        Ok(())
    }

    /// Returns once the browser has acted on a shortcut: it asks the page first, and only then moves the focus.
    pub(super) async fn settle_shortcut(&self) -> Result<(), DisplayError> {
        self.settle().await?;
        self.browser.settle_front().await;
        Ok(())
    }

    /// Returns once the browser has processed all events.
    pub(super) async fn settle(&self) -> Result<(), DisplayError> {
        self.with(|x11, _| settle(x11)).await
    }
}

/// Returns the number of a button in the X protocol.
const fn number(button: Button) -> u8 {
    match button {
        Button::Left => 1,
        Button::Middle => 2,
        Button::Right => 3,
        Button::Back => 8,
        Button::Forward => 9,
    }
}

/// Sends an event of the mouse, which the X server performs after `wait` milliseconds.
fn fake(x11: &X11, kind: u8, detail: u8, (x, y): (i16, i16), wait: u32) -> Result<(), DisplayError> {
    x11.connection.xtest_fake_input(kind, detail, wait, x11.root, x, y, 0).map_err(DisplayError::x).map(drop)
}
