//! Telemetry destinations: named OTLP endpoints of an organization, to which sessions export their events.
//!
//! The values of a destination's headers are secrets: they are sealed before storing, and opened for an export.

mod headers;
mod input;
mod model;
mod ports;
mod service;

pub use headers::{HEADER_NAME_PATTERN, HEADER_VALUE_PATTERN, HeaderEdits};
pub use input::{DestinationRequest, DestinationUpdateRequest};
pub use model::{DeliveryHealth, DestinationFilter, OpenDestination, TelemetryDestination};
pub use ports::{
    AddressVerdict, DestinationAddresses, DestinationDeleted, DestinationStored, NoTelemetryDestinations,
    TelemetryDestinationRepository,
};
#[cfg(feature = "mocks")]
pub use ports::{MockDestinationAddresses, MockTelemetryDestinationRepository};
pub use service::{DestinationDeps, DestinationError, TelemetryDestinations, choose, find};
