//! The export of audit records by several nodes, against a real PostgreSQL.

mod audit_nodes;
mod world;
