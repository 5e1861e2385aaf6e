//! The reasons why an input action fails.

use crate::cdp::CdpError;
use crate::display::DisplayError;
use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;

/// The reason why an input action failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("the page does not accept input: {0}")]
    Page(#[from] CdpError),
    #[error(transparent)]
    Display(#[from] DisplayError),
    /// A session without a display has nothing that the input could act on; the text says what.
    #[error("{0}")]
    NeedsDisplay(String),
    /// An open list or picker takes no such input; the text says which, and what to do.
    #[error("{0}")]
    Picker(String),
    /// The caller has disconnected.
    #[error("the caller has disconnected")]
    Cancelled,
}

impl From<InputError> for Refusal {
    fn from(error: InputError) -> Self {
        let code = match &error {
            InputError::Page(CdpError::Refused { .. }) | InputError::Cancelled => ErrorCode::Failed,
            InputError::Page(CdpError::Blocked(_)) | InputError::Picker(_) => ErrorCode::InvalidState,
            InputError::Page(_) | InputError::Display(DisplayError::Hung(_)) => ErrorCode::BrowserHung,
            InputError::NeedsDisplay(_) => ErrorCode::NotSupported,
            InputError::Display(_) => ErrorCode::Internal,
        };
        Self::new(code, error)
    }
}
