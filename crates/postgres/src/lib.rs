//! Repositories on PostgreSQL, and the private cluster.
