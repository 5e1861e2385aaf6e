//! Repositories on PostgreSQL, and the private cluster.
//!
//! [`Cluster`] runs a PostgreSQL of our own where nobody names one; [`migrate`] brings the schema up to date;
//! [`Database`] holds the connections, and the repositories stand on it; [`Notifications`] hears what other nodes say.

pub mod cluster;
mod database;
mod error;
mod migrate;
mod notify;
#[cfg(feature = "testing")]
pub mod testing;

pub use cluster::{Cluster, ClusterConfig, ClusterError};
pub use database::{BadDatabaseUrl, Database, DatabaseConfig};
pub use migrate::{MigrateError, migrate, revert_all};
pub use notify::{Heard, Notifications};
