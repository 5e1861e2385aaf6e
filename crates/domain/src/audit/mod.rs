//! Audit records: who called what, when, and what came of it. Written once; what came of a call may be corrected until it is answered.

mod cursor;
mod early;
mod filter;
mod model;
mod ports;
mod refused;
mod service;

pub use cursor::{BadCursor, Measured, Position, Stretch};
pub use early::{PreparedRecord, PreparedRecordOutcome};
pub use filter::{AuditFilter, AuditQuery, Reading};
pub use model::{AuditEntry, AuditRecord, AuditService, AuthStrategy};
pub use ports::{AuditRepository, AuditTrail, NodeRun, Stamp};
#[cfg(feature = "mocks")]
pub use ports::{MockAuditRepository, MockAuditTrail};
pub use refused::RefusedTries;
pub use service::{AuditChunk, AuditLogs, AuditPage, ReadAuditError};
