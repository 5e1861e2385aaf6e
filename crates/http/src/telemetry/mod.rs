//! The routes `…/telemetry`: events of a session, page by page and live; and the events that the server itself
//! records: calls and connections.

mod calls;
mod connection;
mod events;
mod stream;

pub(crate) use self::{
    calls::{Call, about},
    connection::{Connection, Kind},
    events::{__path_list_telemetry_events, list_telemetry_events},
    stream::{__path_stream_telemetry, stream_telemetry},
};
