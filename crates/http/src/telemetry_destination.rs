//! The routes `/telemetry/destinations`. No response contains the value of a header.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use casement_domain::telemetry_destination::{
    DestinationFilter, DestinationRequest, DestinationUpdateRequest, HeaderEdits, TelemetryDestination,
};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{
    answer::{self, Answer, Moment},
    from_fields::from_fields,
    operation::{LIMIT_REACHED, NAME_TAKEN, Operations},
    query::non_empty,
    request::{AnyKey, OrganizationKey, Request},
    schema::{IntoParams, ToSchema},
};

/// An OTLP endpoint to which sessions export their telemetry.
#[derive(Serialize, ToSchema)]
#[schema(as = OtlpDestination)]
pub(crate) struct DestinationBody {
    id: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// The URL of the collector, without `/v1/logs`.
    endpoint: String,
    /// The headers of every request, by canonical name. The values are secrets, and always empty here.
    headers: BTreeMap<String, &'static str>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Moment,
    /// The number of failed requests since the last successful one.
    consecutive_failures: u32,
    /// The kind of the last failure. It stays after a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_error_at: Option<Moment>,
    /// The time of the last successful request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_export_at: Option<Moment>,
}

impl From<TelemetryDestination> for DestinationBody {
    fn from(destination: TelemetryDestination) -> Self {
        Self {
            id: destination.id.to_string(),
            name: destination.name.as_str().to_owned(),
            description: destination.description,
            endpoint: without_final_slash(&destination.endpoint),
            headers: destination.header_names.into_iter().map(|name| (name, "")).collect(),
            created_at: Moment(destination.created_at),
            updated_at: Moment(destination.updated_at),
            consecutive_failures: destination.health.consecutive_failures,
            last_error: destination.health.last_error,
            last_error_at: destination.health.last_error_at.map(Moment),
            last_export_at: destination.health.last_export_at.map(Moment),
        }
    }
}

/// Returns the URL as callers write it: without the slash of an empty path.
fn without_final_slash(url: &Url) -> String {
    let text = url.as_str();
    text.strip_suffix('/').unwrap_or(text).to_owned()
}

/// A destination to create.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = CreateOtlpDestination)]
pub(crate) struct DestinationInput {
    /// The name: 1 to 255 characters without `/`, unique in the organization. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
    /// The http or https URL of the collector at a public address, without `/v1/logs`, query and fragment. Required.
    #[schema(required, nullable = false)]
    endpoint: Option<String>,
    /// At most 1,024 characters.
    description: Option<String>,
    /// The headers of every request, usually a key; at most 8,192 bytes. Stored sealed, and never returned.
    headers: Option<BTreeMap<String, String>>,
}

/// The changes of a destination; an absent field leaves its value unchanged.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = UpdateOtlpDestination)]
pub(crate) struct DestinationChanges {
    /// The new name. Refused while an active session or a pool exports to the destination.
    name: Option<String>,
    /// The new URL of the collector.
    endpoint: Option<String>,
    /// The new description; an empty one removes it.
    description: Option<String>,
    /// The edits of the headers: a value adds or replaces a header, `null` removes it, the others stay.
    headers: Option<BTreeMap<String, Option<String>>>,
}

fn new_headers(headers: Option<BTreeMap<String, String>>) -> Option<HeaderEdits> {
    headers.map(|headers| headers.into_iter().map(|(name, value)| (name, Some(value.into()))).collect())
}

fn edits(headers: Option<BTreeMap<String, Option<String>>>) -> Option<HeaderEdits> {
    headers.map(|headers| headers.into_iter().map(|(name, value)| (name, value.map(Into::into))).collect())
}

from_fields!(DestinationInput => DestinationRequest { name, endpoint, description, headers via new_headers });
from_fields!(DestinationChanges => DestinationUpdateRequest { name, endpoint, description, headers via edits });

/// The filter of a list of destinations.
#[derive(Deserialize, IntoParams)]
pub(crate) struct DestinationListParams {
    /// The whole name; case and accents are ignored.
    name: Option<String>,
    /// Part of the name or the endpoint, or the whole id.
    query: Option<String>,
}

const IN_USE: (&str, &str) = ("409", "An active session or a pool exports to the destination");

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Telemetry destinations", "The telemetry destination does not exist");
    api.post("/telemetry/destinations", "create_telemetry_destination", create_telemetry_destination)
        .summary("Creates a telemetry destination. Nothing is sent to it yet.")
        .body::<DestinationInput>()
        .created::<DestinationBody>()
        .refuses([NAME_TAKEN, LIMIT_REACHED]);
    api.get("/telemetry/destinations", "list_telemetry_destinations", list_telemetry_destinations)
        .summary("Lists telemetry destinations, newest first.")
        .query::<DestinationListParams>()
        .returns_page::<DestinationBody>();
    api.get("/telemetry/destinations/{id_or_name}", "get_telemetry_destination", get_telemetry_destination)
        .summary("Returns a telemetry destination without the values of its headers.")
        .returns::<DestinationBody>();
    api.patch("/telemetry/destinations/{id_or_name}", "update_telemetry_destination", update_telemetry_destination)
        .summary("Updates a telemetry destination. Running exports use the new values from the next request on.")
        .body::<DestinationChanges>()
        .returns::<DestinationBody>()
        .refuses([("409", "The name is taken, or an active session or a pool exports to the destination")]);
    api.delete("/telemetry/destinations/{id_or_name}", "delete_telemetry_destination", delete_telemetry_destination)
        .summary("Deletes a telemetry destination with its headers.")
        .no_content("Deleted")
        .refuses([IN_USE]);
}

async fn create_telemetry_destination(mut request: Request<OrganizationKey>) -> Answer {
    let input = request.json::<DestinationInput>().await?.into();
    let created = request.services().telemetry_destinations.create(request.organization(), input).await?;
    let body = DestinationBody::from(created);
    Ok(answer::created(&format!("/telemetry/destinations/{}", body.id), &body))
}

async fn list_telemetry_destinations(request: Request<AnyKey>) -> Answer {
    let DestinationListParams { name, query } = request.query()?;
    let filter = DestinationFilter { name: non_empty(name), query: non_empty(query) };
    let destinations = &request.services().telemetry_destinations;
    let found = destinations.list(request.organization(), &filter, request.page()?).await?;
    Ok(answer::list(&found.map(DestinationBody::from)))
}

async fn get_telemetry_destination(request: Request<AnyKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let found = request.services().telemetry_destinations.get(request.organization(), &which).await?;
    Ok(answer::record(StatusCode::OK, &DestinationBody::from(found)))
}

async fn update_telemetry_destination(mut request: Request<OrganizationKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let input = request.json::<DestinationChanges>().await?.into();
    let changed = request.services().telemetry_destinations.update(request.organization(), &which, input).await?;
    Ok(answer::record(StatusCode::OK, &DestinationBody::from(changed)))
}

async fn delete_telemetry_destination(request: Request<OrganizationKey>) -> Answer {
    let which = request.path("id_or_name")?;
    request.services().telemetry_destinations.delete(request.organization(), &which).await?;
    Ok(answer::nothing())
}
