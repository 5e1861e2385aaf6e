//! Audit records: who called what, when, and what came of it. Written once, never changed.

mod cursor;
mod filter;
mod model;
mod ports;
mod service;

pub use cursor::{BadCursor, Measured, Position, Stretch};
pub use filter::{AuditFilter, AuditQuery, Reading};
pub use model::{AuditEntry, AuditRecord, AuditService, AuthStrategy};
pub use ports::{AuditRepository, AuditTrail};
#[cfg(feature = "mocks")]
pub use ports::{MockAuditRepository, MockAuditTrail};
pub use service::{AuditChunk, AuditLogs, AuditPage, ReadAuditError};
