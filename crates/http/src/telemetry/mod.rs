//! `…/telemetry`: what happened in a session, page by page and as it happens; and what this service tells of it itself: calls and
//! connections.

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
