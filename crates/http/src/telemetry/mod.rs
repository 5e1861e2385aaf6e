//! The routes `…/telemetry`: events of a session, as a list and as a stream; and the events that the server itself
//! records: calls and connections.

mod calls;
mod connection;
mod events;
mod session_slot;
mod stream;

pub(crate) use self::{
    calls::Call,
    connection::{Connection, Kind},
    events::list_telemetry_events,
    session_slot::about,
    stream::stream_telemetry,
};
use self::{
    events::{EventParams, TelemetryEvent},
    stream::{LastEventHeader, StreamParams},
};
use crate::operation::Operations;

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Telemetry", "The session does not exist");
    api.get("/browsers/{id_or_name}/telemetry/events", "list_telemetry_events", list_telemetry_events)
        .summary("Lists the telemetry events of a session, which may have ended.")
        .query::<EventParams>()
        .returns_list::<TelemetryEvent>()
        .page_headers()
        .refuses([
            ("400", "A parameter breaks a rule, or the offset belongs to another query"),
            ("404", "The session has never existed"),
        ]);
    api.get("/browsers/{id_or_name}/telemetry/stream", "stream_telemetry", stream_telemetry)
        .summary("Streams the telemetry events of a session. The stream ends with the session.")
        .query::<StreamParams>()
        .headers::<LastEventHeader>()
        .streams::<TelemetryEvent>()
        .fails("The database cannot be reached");
}
