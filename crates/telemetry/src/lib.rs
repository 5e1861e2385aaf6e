//! Telemetry events of sessions, audit records of API calls, and the export to an OpenTelemetry collector.
//!
//! - [`events`] collects the events of this node's sessions, stores them in groups and feeds followers.
//! - [`audit`] stores audit records in groups, so that many calls share one commit.
//! - [`otlp`] sends stored events to an OpenTelemetry collector.
//! - [`destinations`] sends events to the collectors that their sessions name.
//! - [`traces`] sends the spans of calls to it.

pub mod audit;
pub mod audit_export;
pub mod destinations;
pub mod events;
pub mod otlp;
pub mod traces;
