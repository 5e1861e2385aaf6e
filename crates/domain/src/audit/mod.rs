//! Audit records: who called what, when, and with which result. A record is written once; its result may be corrected
//! until the call is answered.

mod cursor;
mod filter;
mod model;
mod ports;
mod prepared;
mod refused;
mod service;

pub use cursor::{AuditRange, BadCursor, Position, RangeMeasurement};
pub use filter::{AuditFilter, AuditQuery, Reading};
pub use filter::{MAX_EXCLUDED, MAX_SEARCH, MAX_USERS, MAX_VALUE};
pub use model::{AuditEntry, AuditRecord, AuditService, AuthStrategy};
pub use ports::{AuditRepository, AuditTrail, NodeRun, RecordTimestamp};
#[cfg(feature = "mocks")]
pub use ports::{MockAuditRepository, MockAuditTrail};
pub use prepared::{PreparedRecord, PreparedRecordOutcome};
pub use refused::RefusedAttempts;
pub use service::{AuditChunk, AuditLogs, AuditPage, ReadAuditError};
