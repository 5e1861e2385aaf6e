//! Hands: the mouse and keyboard of a session, wherever they are.

use crate::cdp::CdpError;
use crate::display::DisplayError;
use crate::reply::Refusal;
use crate::state::Live;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::computer::{Button, Point};

use super::KeySym;
use super::display_input::DisplayInput;
use super::page_input::PageInput;
use super::us_keys;

/// Why hands could not do something.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("the page takes no input: it hangs, or a dialog is open; {0}")]
    Page(#[from] CdpError),
    #[error(transparent)]
    Display(#[from] DisplayError),
    /// Nobody waits for it any more.
    #[error("the caller is gone")]
    Gone,
}

impl From<InputError> for Refusal {
    fn from(error: InputError) -> Self {
        let code = match &error {
            InputError::Page(CdpError::Refused { .. }) | InputError::Gone => ErrorCode::Failed,
            InputError::Page(_) | InputError::Display(DisplayError::Hung(_)) => ErrorCode::BrowserHung,
            InputError::Display(_) => ErrorCode::Internal,
        };
        Self::new(code, error)
    }
}

/// The mouse and the keyboard of a session.
#[derive(Debug)]
pub(super) enum InputDevices {
    Display(DisplayInput),
    Page(PageInput),
}

type Done = Result<(), InputError>;

impl InputDevices {
    pub(super) fn of(live: &Live) -> Self {
        match &live.display {
            Some(display) => Self::Display(DisplayInput::new(display.x11())),
            None => Self::Page(PageInput::new(live.browser.clone())),
        }
    }

    pub(super) async fn mouse(&self) -> Result<Point, InputError> {
        match self {
            Self::Display(hands) => Ok(hands.mouse().await?),
            Self::Page(hands) => Ok(hands.mouse()),
        }
    }

    /// Width and height of what the mouse moves on.
    pub(super) async fn size(&self) -> Result<(u32, u32), InputError> {
        match self {
            Self::Display(hands) => Ok(hands.size().await?),
            Self::Page(hands) => Ok(hands.size()),
        }
    }

    /// Before an action: what is in front may have changed.
    pub(super) async fn begin(&mut self) -> Done {
        match self {
            Self::Display(hands) => Ok(hands.ready_keyboard().await?),
            Self::Page(hands) => Ok(hands.turn_to_front().await?),
        }
    }

    /// After an action: everything has been taken.
    pub(super) async fn end(&mut self) -> Done {
        match self {
            Self::Display(hands) => Ok(hands.settle().await?),
            // Every event was answered.
            Self::Page(_) => Ok(()),
        }
    }

    pub(super) async fn move_to(&mut self, to: Point) -> Done {
        match self {
            Self::Display(hands) => Ok(hands.move_to(to).await?),
            Self::Page(hands) => Ok(hands.move_to(to).await?),
        }
    }

    pub(super) async fn button(&mut self, button: Button, down: bool) -> Done {
        match self {
            Self::Display(hands) => Ok(hands.button(button, down).await?),
            Self::Page(hands) => Ok(hands.button(button, down).await?),
        }
    }

    pub(super) async fn click(&mut self, button: Button, times: u32) -> Done {
        match self {
            Self::Display(hands) => Ok(hands.click(button, times).await?),
            Self::Page(hands) => Ok(hands.click(button, times).await?),
        }
    }

    pub(super) async fn wheel(&mut self, right: i32, down: i32) -> Done {
        match self {
            Self::Display(hands) => Ok(hands.wheel(right, down).await?),
            Self::Page(hands) => Ok(hands.wheel(right, down).await?),
        }
    }

    pub(super) async fn key(&mut self, key: KeySym, down: bool) -> Done {
        match self {
            Self::Display(hands) => Ok(hands.key(key, down).await?),
            Self::Page(hands) => Ok(hands.key(key, down).await?),
        }
    }

    /// A key that goes down and stays there, goes down again, or goes up: as it is on the keyboard of somebody who looks.
    pub(super) async fn hold(&mut self, key: KeySym, down: bool) -> Done {
        match self {
            Self::Display(hands) => Ok(hands.hold(key, down).await?),
            Self::Page(hands) => Ok(hands.key(key, down).await?),
        }
    }

    pub(super) async fn write(&mut self, keys: Vec<KeySym>) -> Done {
        match self {
            Self::Display(hands) => Ok(hands.write(keys).await?),
            Self::Page(hands) => Ok(hands.write(keys).await?),
        }
    }

    pub(super) async fn cursor(&mut self, hidden: bool) -> Done {
        match self {
            Self::Display(hands) => Ok(hands.cursor(hidden).await?),
            // There is none in what a page shows.
            Self::Page(_) => Ok(()),
        }
    }

    /// Whether a symbol is written with Shift on this keyboard.
    pub(super) fn is_shifted(&self, key: KeySym) -> bool {
        match self {
            Self::Display(hands) => hands.is_shifted(key),
            Self::Page(_) => us_keys::is_shifted(key),
        }
    }
}
