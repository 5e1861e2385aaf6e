//! Routes, authentication, errors, OpenAPI, relays, pages: the API of Casement over HTTP.
//!
//! Begin at [`serve`] with [`Config`] and [`Services`]. Every request passes the outermost layer (`middleware`: request
//! id, `Host`, log line), then its route (`routes`), then the extractor that its handler names (`caller`): without one
//! a handler reaches no data. A handler extracts, calls one use case, maps; errors become [`ApiError`] in `refusals`.

mod answer;
mod audit;
mod body;
mod caller;
mod computer;
mod connections;
mod error;
mod fresh;
mod fs;
mod host;
mod json;
pub mod live_view;
mod middleware;
mod moment;
#[cfg_attr(not(test), expect(dead_code, reason = "the operations that take forms come next"))]
mod multipart;
mod openapi;
mod operational;
mod patience;
mod picture;
mod plain_errors;
mod pool;
mod project;
mod query;
mod refusals;
pub mod relay;
mod replay;
mod routes;
mod server;
mod script;
mod session;
mod sse;
mod state;
mod stream;
mod token;
mod vm;
pub mod webdriver;

pub use self::{
    connections::{ConnectionRegistry, Registered},
    error::{ApiError, Code},
    openapi::openapi,
    server::{Server, serve},
    state::{Config, Health, Services, SessionDial},
    token::{BadToken, Permission, SessionTokens, redact},
};
