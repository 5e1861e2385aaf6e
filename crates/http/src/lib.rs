//! The HTTP API of Casement: routes, authentication, errors, OpenAPI, relays, pages.
//!
//! The entry point is [`serve`] with [`Config`] and [`Services`]. A request passes the outermost middleware
//! (`middleware`: request id, `Host`, log line), its route (`routes`) and the check of the credential that its handler
//! names (`request`), without which a handler reaches no data. A handler extracts, calls one use case and maps its
//! result; errors become [`ApiError`] in `refusals`. Each resource declares its operations once (`operation`); the
//! routes and the OpenAPI document (`openapi`) are made from the declarations. The program serves the committed document
//! (`committed`); what generates it is compiled with the feature `openapi` and in tests.

mod accept;
mod active_requests;
mod answer;
mod api_key;
mod audit;
mod audit_destination;
mod auth_connection;
mod auth_context;
mod body;
mod client_timeout;
mod cluster;
mod committed;
mod computer;
mod connect;
mod connect_credential;
mod connections;
mod cors;
mod credential;
mod credential_provider;
mod curl;
mod date_time;
mod deployment;
mod devtools;
mod engine;
mod entitlements;
mod error;
mod extension;
mod follow;
mod from_fields;
mod fs;
mod host;
mod http2;
mod ignored_fields;
mod image_response;
mod invocation;
mod json;
pub mod live_view;
mod login_page;
mod middleware;
mod multipart;
mod network;
mod node;
mod not_supported;
#[cfg(any(test, feature = "openapi"))]
mod openapi;
mod operation;
mod operational;
mod permissions;
mod plain_errors;
mod pool;
mod pool_status;
mod process;
mod profile;
mod project;
mod proxy;
mod public_url;
mod query;
mod rate;
mod read_ahead;
mod refusals;
pub mod relay;
mod repl;
mod replay;
mod request;
mod request_uri;
mod resources;
mod restricting;
mod routes;
mod schema;
mod script;
mod selenium_files;
mod server;
mod session;
mod session_files;
mod session_log;
mod spool;
mod sse;
mod state;
mod stream;
mod telemetry;
mod telemetry_destination;
mod tls;
mod token;
mod transport;
mod ui;
mod undelivered;
mod unzstd;
mod vm;
mod waits;
mod wd_hub;
pub mod webdriver;
mod webmcp;
mod websocket_end;

#[cfg(any(test, feature = "openapi"))]
pub use self::openapi::{declared_openapi, declared_operations_page};
pub use self::{
    audit::write_line,
    cluster::{Cluster, IdentityError, NodeCalls, NodeIdentity, Owner},
    committed::{openapi, operations_page},
    connections::{ConnectionRegistry, Registration},
    cors::{BadOrigin, Origin},
    error::{ApiError, Code},
    pool_status::{PoolStatus, PoolStatusSource},
    routes::{RoutePattern, route_patterns},
    server::{Server, serve},
    state::{CallTracing, Config, Health, Readiness, Services, SessionConnector},
    tls::{CertificateError, ServerCertificate},
    token::{BadToken, Permission, SessionToken, SessionTokens},
};
