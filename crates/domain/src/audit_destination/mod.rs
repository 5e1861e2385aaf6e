//! Audit destinations: buckets of an S3-compatible store, to which the audit records of an organization are exported
//! continuously, each record once.
//!
//! The operator offers the buckets and holds their keys; callers choose among them.

mod input;
mod model;
mod ports;
mod service;

pub use input::{AuditDestinationRequest, AuditDestinationUpdateRequest, MAX_KEY, MAX_PREFIX, MAX_REGION};
pub use input::{KEY_PATTERN, PREFIX_PATTERN, REGION_PATTERN};
pub use model::{AuditDestination, AuditExportStatus, BucketTarget, ExportHealth};
pub use ports::{AuditBuckets, AuditDestinationRepository, AuditDestinationStored, AuditExportWaker, BucketFault};
#[cfg(feature = "mocks")]
pub use ports::{MockAuditBuckets, MockAuditDestinationRepository, MockAuditExportWaker};
pub use service::{AuditDestinationDeps, AuditDestinations, AuditExportOffer};
