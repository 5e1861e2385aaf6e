//! The nouns and verbs of the command line, and the operations behind them.

/// A resource of the API, which is a command.
pub(crate) struct Resource {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The fields that the table of a list shows; a point leads into an object.
    pub(crate) columns: &'static [&'static str],
    pub(crate) verbs: &'static [Verb],
}

/// A subcommand of a resource.
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    /// The id of its operation.
    pub(crate) operation: &'static str,
    /// The fields that are given without a flag, in this order.
    pub(crate) positional: &'static [&'static str],
    /// True if the command accepts several resources.
    pub(crate) takes_several: bool,
}

const fn verb(name: &'static str, operation: &'static str) -> Verb {
    Verb { name, operation, positional: &[], takes_several: false }
}

const fn with(name: &'static str, operation: &'static str, positional: &'static [&'static str]) -> Verb {
    Verb { name, operation, positional, takes_several: false }
}

const fn several(name: &'static str, operation: &'static str) -> Verb {
    Verb { name, operation, positional: &[], takes_several: true }
}

/// All resources, in the order of the help.
pub(crate) const RESOURCES: &[Resource] = &[
    Resource {
        name: "sessions",
        about: "Create, list, drive and delete browser sessions",
        columns: &["session_id", "name", "headless", "profile.name", "pool.name", "timeout_seconds", "created_at"],
        verbs: &[
            verb("list", "list_browsers"),
            verb("get", "get_browser"),
            verb("create", "create_browser"),
            verb("update", "update_browser"),
            several("delete", "delete_browser"),
            with("curl", "curl", &["url"]),
            verb("telemetry", "list_telemetry_events"),
            verb("follow-telemetry", "stream_telemetry"),
            verb("logs", "stream_logs"),
            verb("replays", "list_replays"),
            verb("start-replay", "start_replay"),
            verb("stop-replay", "stop_replay"),
            verb("download-replay", "download_replay"),
        ],
    },
    Resource {
        name: "pools",
        about: "Create, list and delete pools, and acquire and release their browsers",
        columns: &["id", "name", "browser_pool_config.size", "available_count", "acquired_count", "created_at"],
        verbs: &[
            verb("list", "list_pools"),
            verb("get", "get_pool"),
            verb("create", "create_pool"),
            verb("update", "update_pool"),
            several("delete", "delete_pool"),
            verb("acquire", "acquire_browser"),
            with("release", "release_browser", &["session_id"]),
            several("flush", "flush_pool"),
        ],
    },
    Resource {
        name: "profiles",
        about: "Manage profiles, which keep cookies and storage between sessions",
        columns: &["id", "name", "last_used_at", "created_at"],
        verbs: &[
            verb("list", "list_profiles"),
            verb("get", "get_profile"),
            verb("create", "create_profile"),
            verb("update", "update_profile"),
            several("delete", "delete_profile"),
            verb("download", "download_profile"),
        ],
    },
    Resource {
        name: "proxies",
        about: "Manage and check proxies",
        columns: &["id", "name", "type", "protocol", "status", "ip_address", "last_checked"],
        verbs: &[
            verb("list", "list_proxies"),
            verb("get", "get_proxy"),
            verb("create", "create_proxy"),
            verb("update", "update_proxy"),
            several("delete", "delete_proxy"),
            several("check", "check_proxy"),
        ],
    },
    Resource {
        name: "credentials",
        about: "Manage stored logins",
        columns: &["id", "name", "domain", "value_keys", "has_totp_secret", "updated_at"],
        verbs: &[
            verb("list", "list_credentials"),
            verb("get", "get_credential"),
            verb("create", "create_credential"),
            verb("update", "update_credential"),
            several("delete", "delete_credential"),
            verb("totp-code", "get_totp_code"),
        ],
    },
    Resource {
        name: "providers",
        about: "Manage credential providers",
        columns: &["id", "name", "provider_type", "enabled", "priority", "server_url", "updated_at"],
        verbs: &[
            verb("list", "list_credential_providers"),
            verb("get", "get_credential_provider"),
            verb("create", "create_credential_provider"),
            verb("update", "update_credential_provider"),
            several("delete", "delete_credential_provider"),
            verb("items", "list_credential_provider_items"),
            verb("test", "test_credential_provider"),
        ],
    },
    Resource {
        name: "destinations",
        about: "Manage telemetry destinations",
        columns: &["id", "name", "endpoint", "consecutive_failures", "last_error", "last_export_at", "updated_at"],
        verbs: &[
            verb("list", "list_telemetry_destinations"),
            verb("get", "get_telemetry_destination"),
            verb("create", "create_telemetry_destination"),
            verb("update", "update_telemetry_destination"),
            several("delete", "delete_telemetry_destination"),
        ],
    },
    Resource {
        name: "connections",
        about: "Manage auth connections and their logins",
        columns: &["id", "domain", "profile_name", "status", "flow_status", "flow_step", "last_auth_check_at"],
        verbs: &[
            verb("list", "list_auth_connections"),
            verb("get", "get_auth_connection"),
            verb("create", "create_auth_connection"),
            verb("update", "update_auth_connection"),
            several("delete", "delete_auth_connection"),
            verb("login", "login_auth_connection"),
            verb("submit", "submit_auth_connection"),
            verb("follow", "follow_auth_connection"),
            verb("timeline", "list_auth_connection_timeline"),
        ],
    },
    Resource {
        name: "keys",
        about: "Create, list and revoke API keys",
        columns: &["id", "name", "masked_key", "project_name", "policy", "expires_at", "created_at"],
        verbs: &[
            verb("list", "list_api_keys"),
            verb("get", "get_api_key"),
            verb("create", "create_api_key"),
            verb("update", "update_api_key"),
            several("revoke", "delete_api_key"),
            verb("rotate", "rotate_api_key"),
        ],
    },
    Resource {
        name: "projects",
        about: "Manage projects",
        columns: &["id", "name", "status", "created_at"],
        verbs: &[
            verb("list", "list_projects"),
            verb("get", "get_project"),
            verb("create", "create_project"),
            verb("update", "update_project"),
            several("delete", "delete_project"),
        ],
    },
    Resource {
        name: "limits",
        about: "Show and change the limits of the organization and of projects",
        columns: &[],
        verbs: &[
            verb("get", "get_organization_limits"),
            verb("update", "update_organization_limits"),
            verb("get-project", "get_project_limits"),
            verb("update-project", "update_project_limits"),
        ],
    },
    Resource {
        name: "audit",
        about: "List and export audit records",
        columns: &["timestamp", "method", "path", "status", "api_key_id", "client_ip", "count"],
        verbs: &[verb("list", "list_audit_records"), verb("export", "export_audit_chunk")],
    },
    Resource {
        name: "engines",
        about: "List the engines of an installation and what they can do",
        columns: &["name", "kind", "default", "max_sessions"],
        verbs: &[verb("list", "list_engines")],
    },
    Resource {
        name: "nodes",
        about: "List the nodes of an installation, and drain them",
        columns: &["id", "host", "state", "sessions", "max_sessions", "idle_browsers", "version", "heartbeat_at"],
        verbs: &[
            verb("list", "list_nodes"),
            verb("get", "get_node"),
            verb("drain", "drain_node"),
            verb("resume", "resume_node"),
        ],
    },
    Resource {
        name: "audit-destinations",
        about: "Manage the buckets to which audit records are exported",
        columns: &["id", "bucket", "prefix", "status", "consecutive_failures", "last_error", "last_success_at"],
        verbs: &[
            verb("list", "list_audit_destinations"),
            verb("get", "get_audit_destination"),
            verb("create", "create_audit_destination"),
            verb("update", "update_audit_destination"),
            several("delete", "delete_audit_destination"),
            verb("test", "test_audit_destination"),
        ],
    },
    Resource {
        name: "extensions",
        about: "Upload, list and delete Chromium extensions",
        columns: &["id", "name", "size_bytes", "last_used_at", "created_at"],
        verbs: &[
            verb("list", "list_extensions"),
            verb("get", "get_extension"),
            with("create", "upload_extension", &["file"]),
            several("delete", "delete_extension"),
            verb("download", "download_extension"),
            with("download-from-store", "extension_from_web_store", &["url"]),
        ],
    },
    Resource {
        name: "apps",
        about: "List deployed apps",
        columns: &["id", "app_name", "version", "region", "actions", "deployment"],
        verbs: &[verb("list", "list_apps")],
    },
    Resource {
        name: "deployments",
        about: "List and stop deployments; `casement deploy` makes one",
        columns: &["id", "status", "entrypoint_rel_path", "source_type", "created_at", "status_reason"],
        verbs: &[
            verb("list", "list_deployments"),
            verb("get", "get_deployment"),
            several("stop", "stop_deployment"),
            verb("follow", "follow_deployment"),
        ],
    },
    Resource {
        name: "invocations",
        about: "Start, list and end invocations of apps; `casement invoke` shows the log of one",
        columns: &["id", "app_name", "action_name", "version", "status", "started_at", "finished_at"],
        verbs: &[
            verb("list", "list_invocations"),
            verb("get", "get_invocation"),
            verb("create", "create_invocation"),
            verb("update", "update_invocation"),
            verb("browsers", "list_invocation_browsers"),
            several("delete-browsers", "delete_invocation_browsers"),
            verb("follow", "follow_invocation"),
        ],
    },
];
