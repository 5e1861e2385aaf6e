//! The use cases of telemetry destinations.

use std::sync::Arc;

use secrecy::ExposeSecret as _;
use time::Duration;
use url::Url;

use super::headers::Headers;
use super::{
    AddressVerdict, DeliveryHealth, DestinationAddresses, DestinationDeleted, DestinationFilter, DestinationRequest,
    DestinationStored, DestinationUpdateRequest, OpenDestination, TelemetryDestination, TelemetryDestinationRepository,
};
use crate::access::Scope;
use crate::clock::{Clock, IdSource};
use crate::error::{InUse, NameTaken, NotFound, UseCaseError};
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::{OrganizationId, TelemetryDestinationId};
use crate::page::{Listed, Page};
use crate::permission::{Kind, Target, Verb, Which};
use crate::reference::Reference;
use crate::sealing::{Resealed, SealError, Sealer};
use crate::store_error::StoreError;
use crate::telemetry::ExportRequest;

/// The error of a use case of telemetry destinations.
pub type DestinationError = UseCaseError;

/// The kind in errors.
const KIND: &str = "telemetry destination";

/// The dependencies of the use cases of telemetry destinations.
#[derive(Clone)]
pub struct DestinationDeps {
    /// The stored destinations.
    pub destinations: Arc<dyn TelemetryDestinationRepository>,
    /// Seals the headers.
    pub sealer: Arc<dyn Sealer>,
    /// Checks the addresses of endpoints.
    pub addresses: Arc<dyn DestinationAddresses>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of identifiers.
    pub ids: Arc<dyn IdSource>,
}

/// The use cases of telemetry destinations.
#[derive(Clone)]
pub struct TelemetryDestinations {
    deps: DestinationDeps,
}

/// Returns the organization's destination with this identifier or name.
///
/// # Errors
/// Returns the error of the store.
pub async fn find(
    destinations: &dyn TelemetryDestinationRepository,
    organization: OrganizationId,
    which: &str,
) -> Result<Option<TelemetryDestination>, StoreError> {
    match which.parse() {
        Ok(id) => destinations.find(organization, id).await,
        Err(_) => destinations.named(organization, which).await,
    }
}

/// Finds the destination that a request for telemetry names. One that does not exist, or that the caller may not read, is
/// refused by [`on_change`](crate::telemetry::on_change).
///
/// # Errors
/// Returns the error of the store.
pub async fn choose(
    destinations: &dyn TelemetryDestinationRepository,
    scope: &Scope,
    export: &mut ExportRequest,
) -> Result<(), StoreError> {
    if let Some(Ok(which)) = export.destination.as_ref().map(Reference::parse)
        && let Some(destination) = find(destinations, scope.organization(), which).await?
    {
        let target = Target::InOrganization(Kind::TelemetryDestinations, Which::Id(destination.id.ulid()));
        export.refused = scope.allow(Verb::Read, target).err();
        export.found = Some(destination.id);
    }
    Ok(())
}

impl TelemetryDestinations {
    /// Creates the use cases.
    #[must_use]
    pub fn new(deps: DestinationDeps) -> Self {
        Self { deps }
    }

    /// Stores a new destination. Nothing is sent to it yet.
    ///
    /// # Errors
    /// See [`DestinationError`]; then nothing is stored.
    pub async fn create(
        &self,
        organization: OrganizationId,
        request: DestinationRequest,
    ) -> Result<TelemetryDestination, DestinationError> {
        let new = request.parse()?;
        self.check_address(&new.endpoint).await?;
        let id = TelemetryDestinationId::mint(self.deps.ids.as_ref());
        let now = self.deps.clock.now();
        let destination = TelemetryDestination {
            id,
            organization,
            name: new.name,
            description: new.description,
            endpoint: new.endpoint,
            header_names: new.headers.names(),
            headers: self.seal(id, &new.headers)?,
            created_at: now,
            updated_at: now,
            health: DeliveryHealth::default(),
        };
        let stored = self.deps.destinations.create(&destination, TelemetryDestination::MAX).await?;
        stored_or_refused(stored, &destination)?;
        Ok(destination)
    }

    /// Returns the organization's destination with this identifier or name.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(
        &self,
        organization: OrganizationId,
        which: &str,
    ) -> Result<TelemetryDestination, DestinationError> {
        let found = find(&*self.deps.destinations, organization, which).await?;
        found.ok_or_else(|| NotFound::new(KIND, which).into())
    }

    /// Returns the organization's destinations, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(
        &self,
        organization: OrganizationId,
        filter: &DestinationFilter,
        page: Page,
    ) -> Result<Listed<TelemetryDestination>, StoreError> {
        self.deps.destinations.list(organization, filter, page).await
    }

    /// Changes a destination. Sessions that export to it use the new values from the next request on.
    ///
    /// # Errors
    /// See [`DestinationError`]; then nothing is changed.
    pub async fn update(
        &self,
        organization: OrganizationId,
        which: &str,
        update: DestinationUpdateRequest,
    ) -> Result<TelemetryDestination, DestinationError> {
        // This loop ends: each lost race means that another change succeeded.
        loop {
            let current = self.get(organization, which).await?;
            let changes = update.clone().parse(&current.endpoint, self.open_headers(&current)?)?;
            if let Some(endpoint) = &changes.endpoint {
                self.check_address(endpoint).await?;
            }
            let mut next = current.clone();
            next.name = changes.name.unwrap_or(next.name);
            next.endpoint = changes.endpoint.unwrap_or(next.endpoint);
            next.description = changes.description.unwrap_or(next.description);
            if let Some(headers) = changes.headers {
                (next.header_names, next.headers) = (headers.names(), self.seal(current.id, &headers)?);
            }
            // Later than before, whatever the clock says, because exports compare the times.
            next.updated_at = self.deps.clock.now().max(current.updated_at + Duration::MICROSECOND);
            match self.deps.destinations.replace(&current, &next).await? {
                DestinationStored::LostRace => continue,
                DestinationStored::InUse => return Err(in_use(which)),
                stored => stored_or_refused(stored, &next)?,
            }
            return Ok(next);
        }
    }

    /// Deletes a destination that no active session and no pool uses.
    ///
    /// # Errors
    /// See [`DestinationError`].
    pub async fn delete(&self, organization: OrganizationId, which: &str) -> Result<(), DestinationError> {
        let id = self.get(organization, which).await?.id;
        match self.deps.destinations.delete(organization, id).await? {
            DestinationDeleted::Yes => Ok(()),
            DestinationDeleted::InUse => Err(in_use(which)),
            DestinationDeleted::NotFound => Err(NotFound::new(KIND, which).into()),
        }
    }

    /// Returns a destination with its opened headers, for an export; `None` if it does not exist.
    ///
    /// # Errors
    /// The error of the store; [`SealError`] if the headers cannot be opened.
    pub async fn open(&self, id: TelemetryDestinationId) -> Result<Option<OpenDestination>, DestinationError> {
        let Some(found) = self.deps.destinations.find_any(id).await? else { return Ok(None) };
        let headers = self.open_headers(&found)?.into_inner();
        Ok(Some(OpenDestination { id, version: found.updated_at, endpoint: found.endpoint, headers }))
    }

    /// Stores the outcome of an export: a success, or the kind of a failure.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn note_outcome(&self, id: TelemetryDestinationId, outcome: Result<(), &str>) -> Result<(), StoreError> {
        let now = self.deps.clock.now();
        match outcome {
            Ok(()) => self.deps.destinations.note_success(id, now).await,
            Err(error) => self.deps.destinations.note_failure(id, error, now).await,
        }
    }

    /// Reseals the headers that are not sealed with the current master key. Headers that cannot be opened are unchanged.
    ///
    /// # Errors
    /// See [`DestinationError`]; headers that were resealed before the error stay resealed.
    pub async fn reseal(&self) -> Result<Resealed, DestinationError> {
        let (sealer, mut resealed) = (&*self.deps.sealer, Resealed::default());
        let rows = &self.deps.destinations;
        loop {
            let processed = resealed.processed();
            for (id, sealed) in &rows.sealed_with_other_key(sealer.current()?, resealed.batch()).await? {
                if let Some(next) = resealed.reseal_value(sealer, TelemetryDestination::place(*id), sealed)? {
                    rows.reseal(*id, sealed, &next).await?;
                    resealed.done += 1;
                }
            }
            if resealed.processed() == processed {
                return Ok(resealed);
            }
        }
    }

    async fn check_address(&self, endpoint: &Url) -> Result<(), InvalidInput> {
        match self.deps.addresses.check(endpoint).await {
            AddressVerdict::Allowed => Ok(()),
            AddressVerdict::Refused => {
                let rule = "must be at a host that this server can resolve to a public address";
                Err(InvalidInput::of("endpoint", InvalidValue::new(FieldCode::Blocked, rule)))
            }
        }
    }

    fn seal(&self, id: TelemetryDestinationId, headers: &Headers) -> Result<Vec<u8>, SealError> {
        self.deps.sealer.seal(&TelemetryDestination::place(id), headers.to_json().expose_secret().as_bytes())
    }

    fn open_headers(&self, destination: &TelemetryDestination) -> Result<Headers, SealError> {
        let clear = self.deps.sealer.open(&TelemetryDestination::place(destination.id), &destination.headers)?;
        Headers::of_json(&clear).ok_or(SealError::Damaged)
    }
}

fn stored_or_refused(stored: DestinationStored, destination: &TelemetryDestination) -> Result<(), DestinationError> {
    match stored {
        DestinationStored::Yes => Ok(()),
        DestinationStored::NameTaken => {
            Err(NameTaken::new("a telemetry destination", destination.name.as_str()).into())
        }
        DestinationStored::LimitExceeded(limit) => Err(limit.into()),
        DestinationStored::InUse => Err(in_use(destination.name.as_str())),
        DestinationStored::LostRace => Err(NotFound::new(KIND, destination.id.to_string()).into()),
    }
}

fn in_use(which: &str) -> DestinationError {
    let usage = "used by an active session or a pool; end its export first";
    InUse { kind: KIND, which: which.to_owned(), usage }.into()
}
