//! What happens to the programs of a session.

use serde_json::json;

use super::Telemetry;
use super::event::Event;
use crate::memory::{self, Program};
use casement_agent_protocol::telemetry::{Category, SourceKind};

/// The largest programs that are told of when the memory was full.
const MAX_BYTES: usize = 5;

/// When a program ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase {
    /// It never worked.
    Startup,
    /// It worked before.
    Running,
}

/// A program ended that should not have.
pub(super) fn crashed(program: &str, phase: Phase, pid: Option<u32>) -> Event {
    let phase = match phase {
        Phase::Startup => "startup",
        Phase::Running => "running",
    };
    let event = Event::new("service_crashed", Category::System, SourceKind::LocalProcess);
    event.with("service_name", program).with("phase", phase).with("pid", pid)
}

impl Telemetry {
    /// A program ended that should not have.
    pub(crate) fn program_ended(&self, program: &str, phase: Phase, pid: Option<u32>) {
        if self.requested_state.borrow().on.system {
            self.buffered.add(crashed(program, phase, pid));
        }
    }

    /// Everything is being ended, because all of it together holds too much memory.
    pub(crate) fn memory_was_full(&self) {
        if !self.requested_state.borrow().on.system {
            return;
        }
        let largest = memory::largest(MAX_BYTES);
        let Some(first) = largest.first() else { return };
        let reported = |one: &Program| json!({ "pid": one.pid, "name": one.name, "rss_kb": one.resident_kib });
        let event = Event::new("system_oom_kill", Category::System, SourceKind::LocalProcess)
            .with("pid", first.pid)
            .with("process_name", first.name.as_str())
            .with("rss_kb", first.resident_kib)
            .with("constraint", "memcg")
            .with("top_tasks", largest.iter().map(reported).collect::<Vec<_>>());
        self.buffered.add(event);
    }
}
