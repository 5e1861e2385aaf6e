//! Telemetry destinations.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::SecretString;
use time::OffsetDateTime;
use url::Url;

use crate::ids::{OrganizationId, TelemetryDestinationId};
use crate::name::LabelName;

/// A stored destination. The values of its headers are sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetryDestination {
    /// The identifier.
    pub id: TelemetryDestinationId,
    /// The organization.
    pub organization: OrganizationId,
    /// The name, which is unique in the organization.
    pub name: LabelName,
    /// The description.
    pub description: Option<String>,
    /// The URL of the collector, without the path of a signal.
    pub endpoint: Url,
    /// The names of the headers, in their canonical form and in order.
    pub header_names: Vec<String>,
    /// The headers as a JSON object, sealed for [`TelemetryDestination::place`].
    pub headers: Vec<u8>,
    /// The time of the creation.
    pub created_at: OffsetDateTime,
    /// The time of the last change by a caller.
    pub updated_at: OffsetDateTime,
    /// The outcomes of its exports.
    pub health: DeliveryHealth,
}

impl TelemetryDestination {
    /// The maximum number of destinations of an organization.
    pub const MAX: u32 = 50;

    /// Returns the place for which the headers of a destination are sealed.
    #[must_use]
    pub fn place(id: TelemetryDestinationId) -> String {
        format!("telemetry_destinations/{id}/headers")
    }
}

/// The outcomes of the exports to a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryHealth {
    /// The number of failed requests since the last successful one.
    pub consecutive_failures: u32,
    /// The kind of the last failure, without addresses, secrets and texts of the destination.
    pub last_error: Option<String>,
    /// The time of the last failure.
    pub last_error_at: Option<OffsetDateTime>,
    /// The time of the last successful request.
    pub last_export_at: Option<OffsetDateTime>,
}

/// The filter of a list of destinations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationFilter {
    /// The exact name, compared without case and accents.
    pub name: Option<String>,
    /// A substring of the name or the endpoint, compared without case; or the whole identifier.
    pub query: Option<String>,
}

/// A destination with its opened headers, for an export.
#[derive(Clone)]
pub struct OpenDestination {
    /// The identifier.
    pub id: TelemetryDestinationId,
    /// The version, which changes with every change by a caller.
    pub version: OffsetDateTime,
    /// The URL of the collector, without the path of a signal.
    pub endpoint: Url,
    /// The headers.
    pub headers: BTreeMap<String, SecretString>,
}

impl fmt::Debug for OpenDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenDestination").field("id", &self.id).finish_non_exhaustive()
    }
}
