//! The repositories and the private cluster, against a real PostgreSQL.

mod cluster;
mod database;
mod migrations;
mod notify;
mod support;
