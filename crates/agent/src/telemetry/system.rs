//! What happens to the programs of a session.

use super::event::Event;
use crate::protocol::telemetry::{Category, SourceKind};

/// A program ended that should not have.
pub(super) fn crashed(program: &str, pid: Option<u32>) -> Event {
    let event = Event::new("service_crashed", Category::System, SourceKind::LocalProcess);
    event.with("service_name", program).with("phase", "running").with("pid", pid)
}
