//! The API over a real connection, with mocked ports.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod acquire;
mod acquire_recorded;
mod audit;
mod auth;
mod auth_connection_logins;
mod auth_connections;
mod bodies;
mod computer;
mod connect;
mod credential_providers;
mod credentials;
mod deployments;
mod direct;
mod errors;
mod extensions;
mod files;
mod hosted_login;
mod hostile;
mod invocations;
mod keys;
mod logs;
mod not_supported;
mod operational;
mod pools;
mod process;
mod profiles;
mod projects;
mod protocol;
mod proxies;
mod repl;
mod replay;
mod script;
mod sessions;
mod sites;
mod slow_queue;
mod sockets;
mod support;
mod telemetry;
mod tls;
mod ui;
mod wd_hub;
mod webdriver;
mod webmcp;
