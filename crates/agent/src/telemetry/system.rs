//! Events of the programs of a session.

use serde_json::json;

use super::Telemetry;
use super::event::Event;
use crate::memory::{self, Program};
use casement_agent_protocol::telemetry::{Category, SourceKind};

/// The number of the largest programs that are reported when the memory was full.
const MAX_PROGRAMS: usize = 5;

/// The phase in which a program ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase {
    /// The program was never ready.
    Startup,
    /// The program was ready before.
    Running,
}

/// Creates the event of a program that ended unexpectedly.
pub(super) fn crashed(program: &str, phase: Phase, pid: Option<u32>) -> Event {
    let phase = match phase {
        Phase::Startup => "startup",
        Phase::Running => "running",
    };
    let event = Event::new("service_crashed", Category::System, SourceKind::LocalProcess);
    event.with("service_name", program).with("phase", phase).with("pid", pid)
}

impl Telemetry {
    /// Reports a program that ended unexpectedly.
    pub(crate) fn report_program_end(&self, program: &str, phase: Phase, pid: Option<u32>) {
        if self.request.borrow().categories.system {
            self.events.add(crashed(program, phase, pid));
        }
    }

    /// Reports that the session ends because its memory was full.
    pub(crate) fn report_memory_full(&self) {
        if !self.request.borrow().categories.system {
            return;
        }
        let largest = memory::largest(MAX_PROGRAMS);
        let Some(first) = largest.first() else { return };
        let described = |one: &Program| json!({ "pid": one.pid, "name": one.name, "rss_kb": one.resident_kib });
        let event = Event::new("system_oom_kill", Category::System, SourceKind::LocalProcess)
            .with("pid", first.pid)
            .with("process_name", first.name.as_str())
            .with("rss_kb", first.resident_kib)
            .with("constraint", "memcg")
            .with("top_tasks", largest.iter().map(described).collect::<Vec<_>>());
        self.events.add(event);
    }
}
