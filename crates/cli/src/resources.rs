//! The nouns and verbs of the command line, and the operations behind them.

use crate::table::{Column, SESSION_STATE, at, since, size, text, whole};

/// A resource of the API, which is a command.
pub(crate) struct Resource {
    pub(crate) name: &'static str,
    /// Other words for it, which work too.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) about: &'static str,
    /// The columns of its lists, the most important ones first.
    pub(crate) columns: &'static [Column],
    pub(crate) verbs: &'static [Verb],
}

impl Resource {
    /// Returns the name of one: `session`.
    pub(crate) fn singular(&self) -> &'static str {
        self.aliases.first().copied().unwrap_or(self.name)
    }
}

/// A subcommand of a resource.
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    /// The id of its operation.
    pub(crate) operation: &'static str,
    /// Other words for it, which work too.
    pub(crate) aliases: &'static [&'static str],
    /// The fields that are given without a flag, in this order.
    pub(crate) positional: &'static [&'static str],
    /// True if the command accepts several resources.
    pub(crate) takes_several: bool,
    /// What a list of another kind than the resource is called, and its columns.
    pub(crate) listed: Option<(&'static str, &'static [Column])>,
}

const fn verb(name: &'static str, operation: &'static str) -> Verb {
    Verb { name, operation, aliases: usual_aliases(name), positional: &[], takes_several: false, listed: None }
}

const fn with(name: &'static str, operation: &'static str, positional: &'static [&'static str]) -> Verb {
    Verb { positional, ..verb(name, operation) }
}

const fn several(name: &'static str, operation: &'static str) -> Verb {
    Verb { takes_several: true, ..verb(name, operation) }
}

const fn lists(name: &'static str, operation: &'static str, what: &'static str, columns: &'static [Column]) -> Verb {
    Verb { listed: Some((what, columns)), ..verb(name, operation) }
}

/// Returns the words that people use for a verb of this name.
const fn usual_aliases(name: &str) -> &'static [&'static str] {
    match name.as_bytes() {
        b"list" => &["ls"],
        b"get" => &["show", "describe"],
        b"create" => &["new", "add"],
        b"update" => &["edit", "set"],
        b"delete" => &["rm", "remove"],
        b"revoke" => &["delete", "rm", "remove"],
        _ => &[],
    }
}

const NAME: Column = text("NAME", &["name"]);
const ID: Column = whole("ID", &["id"]);
const ID_OF_SESSION: Column = whole("ID", &["session_id"]);
const AGE: Column = since("AGE", &["created_at"]);
const CREATED: Column = whole("CREATED", &["created_at"]).wide();

const EVENT_COLUMNS: &[Column] = &[
    at(&["event.ts"]),
    whole("CATEGORY", &["event.category"]),
    whole("TYPE", &["event.type"]),
    whole("STATUS", &["event.data.status", "event.data.status_code", "event.data.level"]),
    text("WHAT", &["event.data.url", "event.data.text", "event.data.message", "event.data.method", "event.data"]),
    whole("SEQ", &["seq"]).wide(),
];
const REPLAY_COLUMNS: &[Column] = &[
    whole("ID", &["replay_id"]),
    whole("STATUS", &["status"]),
    since("STARTED", &["started_at"]),
    since("FINISHED", &["finished_at"]),
    size(&["size_bytes"]),
    text("DETAIL", &["detail"]),
    text("URL", &["replay_view_url"]).wide(),
];
const TIMELINE_COLUMNS: &[Column] = &[
    at(&["timestamp"]),
    whole("TYPE", &["type"]),
    whole("STATUS", &["status"]),
    text("STEP", &["step"]),
    text("ERROR", &["error_message", "website_error", "error_code"]),
    whole("SESSION", &["browser_session_id"]).wide(),
    whole("ID", &["id"]).wide(),
];

/// All resources, in the order of the help.
pub(crate) const RESOURCES: &[Resource] = &[
    Resource {
        name: "sessions",
        aliases: &["session", "browsers", "browser"],
        about: "Create, list, drive and delete browser sessions",
        columns: &[
            NAME,
            ID_OF_SESSION,
            SESSION_STATE,
            AGE,
            since("USED", &["last_active_at"]),
            text("ENGINE", &["engine"]),
            text("POOL", &["pool.name", "pool.id"]),
            text("PROFILE", &["profile.name"]),
            text("TAGS", &["tags"]),
            text("URL", &["start_url"]).wide(),
            whole("HEADLESS", &["headless"]).wide(),
            whole("TIMEOUT", &["timeout_seconds"]).wide(),
            whole("CREATED", &["created_at"]).wide(),
            since("ENDED", &["deleted_at"]).wide(),
            text("END", &["end_message"]).wide(),
        ],
        verbs: &[
            verb("list", "list_browsers"),
            verb("get", "get_browser"),
            verb("create", "create_browser"),
            verb("update", "update_browser"),
            several("delete", "delete_browser"),
            with("curl", "curl", &["url"]),
            lists("telemetry", "list_telemetry_events", "telemetry events", EVENT_COLUMNS),
            verb("follow-telemetry", "stream_telemetry"),
            verb("logs", "stream_logs"),
            lists("replays", "list_replays", "replays", REPLAY_COLUMNS),
            verb("start-replay", "start_replay"),
            verb("stop-replay", "stop_replay"),
            verb("download-replay", "download_replay"),
        ],
    },
    Resource {
        name: "pools",
        aliases: &["pool"],
        about: "Create, list and delete pools, and acquire and release their browsers",
        columns: &[
            NAME,
            ID,
            whole("SIZE", &["browser_pool_config.size"]),
            whole("IDLE", &["available_count"]),
            whole("LEASED", &["acquired_count"]),
            text("BLOCKED", &["blocked_reason"]),
            AGE,
        ],
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
        aliases: &["profile"],
        about: "Manage profiles, which keep cookies and storage between sessions",
        columns: &[NAME, ID, since("USED", &["last_used_at"]), AGE, CREATED],
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
        aliases: &["proxy"],
        about: "Manage and check proxies",
        columns: &[
            NAME,
            ID,
            whole("TYPE", &["type"]),
            whole("STATUS", &["status"]),
            text("ADDRESS", &["ip_address"]),
            since("CHECKED", &["last_checked"]),
            text("FAILURE", &["failure.message", "failure"]),
            whole("PROTOCOL", &["protocol"]).wide(),
        ],
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
        aliases: &["credential"],
        about: "Manage stored logins",
        columns: &[
            NAME,
            ID,
            text("DOMAIN", &["domain"]),
            text("FIELDS", &["value_keys"]),
            whole("TOTP", &["has_totp_secret"]),
            since("CHANGED", &["updated_at"]),
            CREATED,
        ],
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
        aliases: &["provider"],
        about: "Manage credential providers",
        columns: &[
            NAME,
            ID,
            whole("TYPE", &["provider_type"]),
            whole("ENABLED", &["enabled"]),
            whole("PRIORITY", &["priority"]),
            text("SERVER", &["server_url", "vault"]),
            since("CHANGED", &["updated_at"]).wide(),
        ],
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
        aliases: &["destination"],
        about: "Manage telemetry destinations",
        columns: &[
            NAME,
            ID,
            text("ENDPOINT", &["endpoint"]),
            since("EXPORTED", &["last_export_at"]),
            whole("FAILURES", &["consecutive_failures"]),
            text("ERROR", &["last_error"]),
        ],
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
        aliases: &["connection"],
        about: "Manage auth connections and their logins",
        columns: &[
            text("DOMAIN", &["domain"]),
            ID,
            text("PROFILE", &["profile_name"]),
            whole("STATUS", &["status"]),
            text("FLOW", &["flow_status"]),
            text("STEP", &["flow_step"]),
            since("CHECKED", &["last_auth_check_at"]),
        ],
        verbs: &[
            verb("list", "list_auth_connections"),
            verb("get", "get_auth_connection"),
            verb("create", "create_auth_connection"),
            verb("update", "update_auth_connection"),
            several("delete", "delete_auth_connection"),
            verb("login", "login_auth_connection"),
            verb("submit", "submit_auth_connection"),
            verb("follow", "follow_auth_connection"),
            lists("timeline", "list_auth_connection_timeline", "entries of the timeline", TIMELINE_COLUMNS),
        ],
    },
    Resource {
        name: "keys",
        aliases: &["key"],
        about: "Create, list and revoke API keys",
        columns: &[
            NAME,
            ID,
            text("PROJECT", &["project_name"]),
            text("EXPIRES", &["expires_at"]),
            AGE,
            since("REVOKED", &["deleted_at"]),
            text("KEY", &["masked_key"]).wide(),
            text("POLICY", &["policy"]).wide(),
        ],
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
        aliases: &["project"],
        about: "Manage projects",
        columns: &[NAME, ID, whole("STATUS", &["status"]), AGE, CREATED],
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
        aliases: &["limit"],
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
        aliases: &["audit-log", "audit-logs"],
        about: "List and export audit records",
        columns: &[
            at(&["timestamp"]),
            whole("METHOD", &["method"]),
            text("PATH", &["path"]),
            whole("STATUS", &["status"]),
            whole("MS", &["duration_ms"]),
            text("ADDRESS", &["client_ip"]),
            whole("COUNT", &["count"]).wide(),
            whole("KEY", &["api_key_id"]).wide(),
            whole("PROJECT", &["project_id"]).wide(),
            whole("ID", &["id"]).wide(),
        ],
        verbs: &[verb("list", "list_audit_records"), verb("export", "export_audit_chunk")],
    },
    Resource {
        name: "engines",
        aliases: &["engine"],
        about: "List the engines of an installation and what they can do",
        columns: &[
            NAME,
            whole("KIND", &["kind"]),
            whole("DEFAULT", &["default"]),
            whole("MAX", &["max_sessions"]),
            text("CAPABILITIES", &["capabilities"]).wide(),
        ],
        verbs: &[verb("list", "list_engines")],
    },
    Resource {
        name: "nodes",
        aliases: &["node"],
        about: "List the nodes of an installation, and drain them",
        columns: &[
            text("HOST", &["host"]),
            ID,
            whole("STATE", &["state"]),
            whole("SESSIONS", &["sessions"]),
            whole("MAX", &["max_sessions"]),
            whole("IDLE", &["idle_browsers"]),
            whole("VERSION", &["version"]),
            since("HEARD", &["heartbeat_at"]),
            text("LABELS", &["labels"]).wide(),
            text("ADDRESS", &["cluster_address", "address"]).wide(),
        ],
        verbs: &[
            verb("list", "list_nodes"),
            verb("get", "get_node"),
            verb("drain", "drain_node"),
            verb("resume", "resume_node"),
        ],
    },
    Resource {
        name: "audit-destinations",
        aliases: &["audit-destination"],
        about: "Manage the buckets to which audit records are exported",
        columns: &[
            text("BUCKET", &["bucket"]),
            text("PREFIX", &["prefix"]),
            ID,
            whole("STATUS", &["status"]),
            since("EXPORTED", &["last_success_at"]),
            whole("FAILURES", &["consecutive_failures"]),
            text("ERROR", &["last_error"]),
        ],
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
        aliases: &["extension"],
        about: "Upload, list and delete Chromium extensions",
        columns: &[NAME, ID, size(&["size_bytes"]), since("USED", &["last_used_at"]), AGE, CREATED],
        verbs: &[
            verb("list", "list_extensions"),
            verb("get", "get_extension"),
            Verb { aliases: &["upload", "add"], ..with("create", "upload_extension", &["file"]) },
            several("delete", "delete_extension"),
            verb("download", "download_extension"),
            with("download-from-store", "extension_from_web_store", &["url"]),
        ],
    },
    Resource {
        name: "apps",
        aliases: &["app"],
        about: "List deployed apps",
        columns: &[
            text("NAME", &["app_name"]),
            whole("VERSION", &["version"]),
            text("ACTIONS", &["actions"]),
            whole("DEPLOYMENT", &["deployment"]),
            ID.wide(),
            whole("REGION", &["region"]).wide(),
        ],
        verbs: &[verb("list", "list_apps")],
    },
    Resource {
        name: "deployments",
        aliases: &["deployment"],
        about: "List and stop deployments; `casement deploy` makes one",
        columns: &[
            ID,
            whole("STATUS", &["status"]),
            text("ENTRYPOINT", &["entrypoint_rel_path"]),
            AGE,
            text("REASON", &["status_reason"]),
            whole("SOURCE", &["source_type"]).wide(),
            CREATED,
        ],
        verbs: &[
            verb("list", "list_deployments"),
            verb("get", "get_deployment"),
            several("stop", "stop_deployment"),
            verb("follow", "follow_deployment"),
        ],
    },
    Resource {
        name: "invocations",
        aliases: &["invocation"],
        about: "Start, list and end invocations of apps; `casement invoke` shows the log of one",
        columns: &[
            text("APP", &["app_name"]),
            text("ACTION", &["action_name"]),
            ID,
            whole("STATUS", &["status"]),
            since("STARTED", &["started_at"]),
            since("ENDED", &["finished_at"]),
            text("REASON", &["status_reason"]),
            whole("VERSION", &["version"]).wide(),
        ],
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
