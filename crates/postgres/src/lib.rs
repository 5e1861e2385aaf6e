//! Repositories on PostgreSQL, and the private cluster.
//!
//! [`Cluster`] runs a private PostgreSQL if no database is configured; [`migrate`] brings the schema up to date;
//! [`Database`] has the connections that the repositories use; [`Notifications`] receives the change feed.

mod api_key;
mod audit;
mod auth_connection;
mod browser;
pub mod cluster;
mod column;
mod credential;
mod credential_provider;
mod database;
mod deployment;
mod error;
mod extension;
mod idle_connection;
mod invocation;
mod migrate;
mod node;
mod notify;
mod organization;
mod partitions;
mod pipelined;
mod pool;
mod profile;
mod project;
mod proxy;
mod query;
mod recent_keys;
mod replay;
mod schema;
mod sealed;
mod session;
mod shape;
mod statement;
mod storage;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod usage;
mod wait_queue;

pub use api_key::PgApiKeys;
pub use audit::PgAudit;
pub use auth_connection::{AUTH_CHANNEL, PgAuthConnections};
pub use browser::PgBrowsers;
pub use cluster::{Cluster, ClusterConfig, ClusterError};
pub use credential::PgCredentials;
pub use credential_provider::PgCredentialProviders;
pub use database::{BadDatabaseUrl, Database, DatabaseConfig};
pub use deployment::{PgDeployments, PgLines, apps_channel};
pub use extension::PgExtensions;
pub use invocation::PgInvocations;
pub use migrate::{MigrateError, migrate, revert_all};
pub use node::PgNodes;
pub use notify::{NotificationEvent, Notifications};
pub use organization::PgOrganizations;
pub use pool::PgPools;
pub use profile::PgProfiles;
pub use project::PgProjects;
pub use proxy::PgProxies;
pub use recent_keys::RecentKeys;
pub use replay::PgReplays;
pub use session::PgSessions;
pub use storage::PgStorageUsage;
pub use telemetry::PgTelemetry;
pub use wait_queue::{PgWaitQueue, node_channel};
