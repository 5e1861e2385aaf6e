//! The mouse and keyboard of a session, on its display or in its pages.

use crate::browser_handle::RunningBrowser;
use casement_agent_protocol::computer::{Button, Point};

use super::display_input::DisplayInput;
use super::input_error::InputError;
use super::key_sym::KeySym;
use super::page_input::PageInput;
use super::us_keys;

/// The mouse and the keyboard of a session.
#[derive(Debug)]
pub(super) enum InputDevices {
    Display(DisplayInput),
    Page(Box<PageInput>),
}

type Done = Result<(), InputError>;

impl InputDevices {
    pub(super) fn of(running: &RunningBrowser) -> Self {
        match &running.display {
            Some(display) => Self::Display(DisplayInput::new(display.x11(), running.browser.clone())),
            None => Self::Page(Box::new(PageInput::new(running.browser.clone()))),
        }
    }

    pub(super) async fn mouse(&self) -> Result<Point, InputError> {
        match self {
            Self::Display(devices) => Ok(devices.mouse().await?),
            Self::Page(devices) => Ok(devices.mouse()),
        }
    }

    /// Returns the width and height of the area that the mouse moves on.
    pub(super) async fn size(&self) -> Result<(u32, u32), InputError> {
        match self {
            Self::Display(devices) => Ok(devices.size().await?),
            Self::Page(devices) => Ok(devices.size()),
        }
    }

    /// Prepares an action: another window or page may have come to the front.
    pub(super) async fn begin(&mut self) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.ready_keyboard().await?),
            Self::Page(devices) => Ok(devices.turn_to_front().await?),
        }
    }

    /// Prepares an action of the mouse: a list or a picker may be open.
    pub(super) async fn begin_mouse(&mut self) -> Done {
        match self {
            Self::Display(_) => Ok(()),
            Self::Page(devices) => devices.look().await,
        }
    }

    /// Completes an action: waits until all its events were accepted.
    pub(super) async fn end(&mut self) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.settle().await?),
            // Every event was acknowledged.
            Self::Page(_) => Ok(()),
        }
    }

    /// Waits until the browser has acted on a shortcut.
    pub(super) async fn end_shortcut(&mut self) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.settle_shortcut().await?),
            Self::Page(_) => Ok(()),
        }
    }

    pub(super) async fn move_to(&mut self, to: Point) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.move_to(to).await?),
            Self::Page(devices) => Ok(devices.move_to(to).await?),
        }
    }

    pub(super) async fn button(&mut self, button: Button, down: bool) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.button(button, down).await?),
            Self::Page(devices) => devices.button(button, down).await,
        }
    }

    pub(super) async fn click(&mut self, button: Button, times: u32) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.click(button, times).await?),
            Self::Page(devices) => devices.click(button, times).await,
        }
    }

    pub(super) async fn wheel(&mut self, right: i32, down: i32) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.wheel(right, down).await?),
            Self::Page(devices) => devices.wheel(right, down).await,
        }
    }

    pub(super) async fn key(&mut self, key: KeySym, down: bool) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.key(key, down).await?),
            Self::Page(devices) => devices.key(key, down).await,
        }
    }

    /// Presses a key, repeats it while it is down, or releases it, as a person at a keyboard does.
    pub(super) async fn hold(&mut self, key: KeySym, down: bool) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.hold(key, down).await?),
            Self::Page(devices) => devices.key(key, down).await,
        }
    }

    pub(super) async fn write(&mut self, keys: Vec<KeySym>) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.write(keys).await?),
            Self::Page(devices) => Ok(devices.write(keys).await?),
        }
    }

    pub(super) async fn cursor(&mut self, hidden: bool) -> Done {
        match self {
            Self::Display(devices) => Ok(devices.cursor(hidden).await?),
            // A page shows no cursor.
            Self::Page(_) => Ok(()),
        }
    }

    /// Returns true if a symbol needs Shift on this keyboard.
    pub(super) fn is_shifted(&self, key: KeySym) -> bool {
        match self {
            Self::Display(devices) => devices.is_shifted(key),
            Self::Page(_) => us_keys::is_shifted(key),
        }
    }
}
