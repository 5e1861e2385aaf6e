//! The resources of the API.

use crate::{
    api_key, audit, audit_destination, auth_connection, auth_context, computer, connect, credential,
    credential_provider, curl, deployment, engine, entitlements, extension, fs, invocation, node,
    operation::Operations, operational, pool, process, profile, project, proxy, repl, replay, script, session,
    session_log, telemetry, telemetry_destination, wd_hub, webmcp,
};

/// The functions that declare the operations of each resource.
const RESOURCES: [fn(&mut Operations); 32] = [
    session::operations,
    connect::operations,
    wd_hub::operations,
    computer::operations,
    fs::operations,
    replay::operations,
    script::operations,
    repl::operations,
    webmcp::operations,
    process::operations,
    session_log::operations,
    telemetry::operations,
    telemetry_destination::operations,
    curl::operations,
    auth_connection::operations,
    credential::operations,
    deployment::operations,
    invocation::operations,
    profile::operations,
    proxy::operations,
    extension::operations,
    pool::operations,
    api_key::operations,
    auth_context::operations,
    credential_provider::operations,
    project::operations,
    entitlements::operations,
    audit::operations,
    audit_destination::operations,
    node::operations,
    engine::operations,
    operational::operations,
];

/// Returns the operations of all resources.
pub(crate) fn operations() -> Operations {
    Operations::declared_by(&RESOURCES)
}
