//! The session of a call, noted where the call is authorized and read when its telemetry event is recorded.

use std::{cell::Cell, rc::Rc};

use actix_web::{HttpMessage as _, HttpRequest};
use casement_domain::SessionId;

/// The slot for the id of the session of a call.
#[derive(Clone, Default)]
pub(super) struct SessionSlot(Rc<Cell<Option<SessionId>>>);

impl SessionSlot {
    /// Returns the session of the call, if it is known.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.0.get()
    }
}

/// Notes the session of a call.
pub(crate) fn about(request: &HttpRequest, session: SessionId) {
    if let Some(slot) = request.extensions().get::<SessionSlot>() {
        slot.0.set(Some(session));
    }
}
