//! The repositories and the private cluster, against a real PostgreSQL.

mod apps;
mod audit;
mod auth_connections;
mod cluster;
mod credential_providers;
mod credentials;
mod database;
mod dumps;
mod extensions;
mod keys;
mod migrations;
mod notify;
mod pools;
mod profiles;
mod projects;
mod proxies;
mod races;
mod recent_keys;
mod replays;
mod resources;
mod sessions;
mod support;
mod telemetry;
mod telemetry_destinations;
mod wait_queue;
mod world;
