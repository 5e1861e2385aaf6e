//! Wires telemetry destinations: their rows, their headers, and the requests to them under the egress rules.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_domain::telemetry_destination::{
    AddressVerdict, DestinationAddresses, DestinationDeps, TelemetryDestinationRepository, TelemetryDestinations,
};
use casement_egress::{Egress, FetchError, Limits, Rules, SystemResolver};
use casement_sealing::MasterKeys;
use casement_telemetry::otlp::{DestinationClient, SendError};
use http::{Request, Response};
use url::Url;

use crate::system::System;

/// The timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests to destinations, and checks their addresses, under the egress rules of sessions.
#[derive(Clone, Debug)]
pub(crate) struct EgressClient(pub(crate) Egress);

#[async_trait]
impl DestinationClient for EgressClient {
    async fn send(&self, request: Request<Bytes>, max_bytes: usize) -> Result<Response<Bytes>, SendError> {
        let url = Url::parse(&request.uri().to_string()).map_err(|_| SendError::Unreachable)?;
        self.0.post(&url, request, max_bytes, TIMEOUT).await.map_err(|error| match error {
            FetchError::Silent => SendError::Silent,
            FetchError::TooLong(_) => SendError::TooLong,
            FetchError::Connection(_) => SendError::Connection,
            FetchError::BadAddress | FetchError::ConnectError | FetchError::Status(_) | FetchError::Redirects => {
                SendError::Unreachable
            }
        })
    }
}

#[async_trait]
impl DestinationAddresses for EgressClient {
    async fn check(&self, endpoint: &Url) -> AddressVerdict {
        match tokio::time::timeout(TIMEOUT, self.0.may_reach(endpoint)).await {
            Ok(true) => AddressVerdict::Allowed,
            Ok(false) | Err(_) => AddressVerdict::Refused,
        }
    }
}

/// Returns the use cases.
pub(crate) fn use_cases(
    rows: Arc<dyn TelemetryDestinationRepository>,
    keys: &MasterKeys,
    client: EgressClient,
) -> TelemetryDestinations {
    TelemetryDestinations::new(DestinationDeps {
        destinations: rows,
        sealer: Arc::new(keys.clone()),
        addresses: Arc::new(client),
        clock: Arc::new(System),
        ids: Arc::new(System),
    })
}

/// Returns the use cases for a command that only changes stored values.
pub(crate) fn without_network(
    rows: Arc<dyn TelemetryDestinationRepository>,
    keys: &MasterKeys,
) -> TelemetryDestinations {
    let egress = Egress::new(Rules::default(), Arc::new(SystemResolver::default()), Limits::default());
    use_cases(rows, keys, EgressClient(egress))
}
