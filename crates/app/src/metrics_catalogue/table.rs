//! The table of all metrics.

mod nodes;

use self::nodes::NODES;
use super::{Kind, Label, Metric, Section};

const fn metric(
    kind: Kind,
    name: &'static str,
    unit: &'static str,
    labels: &'static [Label],
    description: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, description }
}

const fn label(name: &'static str, meaning: &'static str, values: &'static [&'static str]) -> Label {
    Label { name, meaning, values }
}

const ROUTE: Label =
    label("route", "the path of the operation with its placeholders; `none` if the request matched none", &[]);
const METHOD: Label =
    label("method", "the HTTP method", &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"]);
const STATUS: Label = label("status", "the HTTP status code of the response", &[]);
const POOL: Label = label("pool", "the id of the pool", &[]);
const CHANNEL: Label = label("channel", "the protocol of the relay", &["cdp", "webdriver", "live_view"]);
const DATABASE_OPERATION: Label =
    label("operation", "the repository and the call, for example `wait_queue.enter`", &[]);

pub(super) const SECTIONS: &[Section] = &[
    Section { title: "Requests", metrics: REQUESTS },
    Section { title: "Sessions and profiles", metrics: SESSIONS },
    Section { title: "Nodes", metrics: NODES },
    Section { title: "Pools", metrics: POOLS },
    Section { title: "Browsers", metrics: BROWSERS },
    Section { title: "Relays", metrics: RELAYS },
    Section { title: "Egress", metrics: EGRESS },
    Section { title: "Telemetry", metrics: TELEMETRY },
    Section { title: "Export to OpenTelemetry", metrics: OTLP },
    Section { title: "Audit records", metrics: AUDIT },
    Section { title: "Database", metrics: DATABASE },
    Section { title: "Disk and storage", metrics: STORAGE },
];

const REQUESTS: &[Metric] = &[
    metric(
        Kind::Counter,
        "casement_http_requests_total",
        "requests",
        &[ROUTE, METHOD, STATUS],
        "Counts answered requests.",
    ),
    metric(
        Kind::Histogram,
        "casement_http_request_seconds",
        "seconds",
        &[ROUTE, METHOD],
        "Measures the time from a request's head to the head of its response; it includes the wait for a browser.",
    ),
    metric(
        Kind::Counter,
        "casement_half_sent_heads_closed_total",
        "connections",
        &[],
        "Counts connections that were closed because too many connections had sent only a part of a request's head.",
    ),
    metric(
        Kind::Counter,
        "casement_idle_connections_closed_total",
        "connections",
        &[],
        "Counts connections that were closed because too many connections waited for their next request.",
    ),
    metric(
        Kind::Counter,
        "casement_unread_responses_closed_total",
        "connections",
        &[],
        "Counts connections that were closed because too many bytes of responses were not read by their clients.",
    ),
];

const SESSIONS: &[Metric] = &[
    metric(Kind::Gauge, "casement_sessions", "sessions", &[], "Shows the active sessions of this node."),
    metric(
        Kind::Gauge,
        "casement_spare_browsers",
        "browsers",
        &[],
        "Shows the warm browsers for sessions that are created without a pool.",
    ),
    metric(
        Kind::Counter,
        "casement_profiles_saved_total",
        "profiles",
        &[],
        "Counts profiles that were saved at the end of a session.",
    ),
    metric(
        Kind::Counter,
        "casement_profiles_replaced_unseen_total",
        "profiles",
        &[],
        "Counts saved profiles that replaced a version from which their session had not started.",
    ),
    metric(
        Kind::Counter,
        "casement_profiles_not_saved_total",
        "profiles",
        &[],
        "Counts profiles whose changes in a session are lost.",
    ),
    metric(
        Kind::Gauge,
        "casement_browsers_pending_removal",
        "browsers",
        &[],
        "Shows the browsers of ended sessions that are kept until their profile, replays and events are saved.",
    ),
];

const POOLS: &[Metric] = &[
    metric(
        Kind::Gauge,
        "casement_pool_browsers",
        "browsers",
        &[POOL, label("state", "the state of the browsers", &["idle", "leased"])],
        "Shows the browsers of a pool on all nodes. Every node reports them, so use their maximum, not their sum.",
    ),
    metric(
        Kind::Gauge,
        "casement_pool_waiters",
        "callers",
        &[POOL],
        "Shows the callers that wait for a browser, at all nodes. Every node reports them.",
    ),
    metric(
        Kind::Gauge,
        "casement_pool_longest_wait_seconds",
        "seconds",
        &[POOL],
        "Shows the time for which the first caller in the queue has waited.",
    ),
    metric(
        Kind::Gauge,
        "casement_pool_failed_starts",
        "starts",
        &[POOL],
        "Shows the browser starts of a node that failed since its last successful one.",
    ),
    metric(
        Kind::Counter,
        "casement_pool_start_failures_total",
        "starts",
        &[POOL],
        "Counts failed browser starts of a pool.",
    ),
    metric(
        Kind::Gauge,
        "casement_pool_blocked",
        "1",
        &[POOL, label("reason", "why the last start failed", BLOCK_REASONS)],
        "Is 1 while the last browser start of a pool has failed, and missing otherwise.",
    ),
];

const BLOCK_REASONS: &[&str] = &[
    "browser_crashed",
    "browser_hung",
    "agent_error",
    "display_error",
    "proxy_error",
    "engine_error",
    "not_running",
    "timeout",
    "no_room",
    "out_of_range",
    "waits",
    "extension",
    "profile",
    "unavailable",
    "location",
];

const BROWSERS: &[Metric] = &[
    metric(
        Kind::Histogram,
        "casement_browser_operation_seconds",
        "seconds",
        &[
            label(
                "operation",
                "what the browser engine did",
                &["start", "hand_out", "set_viewport", "restart", "is_recording", "screenshot", "end"],
            ),
            label("outcome", "whether it succeeded", &["ok", "failed"]),
        ],
        "Measures the operations of the browser engine.",
    ),
    metric(
        Kind::Histogram,
        "casement_browser_start_seconds",
        "seconds",
        &[label(
            "stage",
            "the stage, in this order; `display` only with a display",
            &["sandbox", "display", "spawn", "devtools_port", "attach", "evaluated", "answer"],
        )],
        "Measures the stages of successful browser starts.",
    ),
];

const RELAYS: &[Metric] = &[
    metric(Kind::Gauge, "casement_relays_open", "connections", &[CHANNEL], "Shows the open relays to browsers."),
    metric(
        Kind::Counter,
        "casement_relay_bytes_total",
        "bytes",
        &[CHANNEL, label("direction", "the direction", &["from_client", "to_client"])],
        "Counts the bytes that relays passed on.",
    ),
    metric(
        Kind::Counter,
        "casement_relays_ended_total",
        "connections",
        &[CHANNEL, label("reason", "the reason of the server, as in the close frame", CLOSE_REASONS)],
        "Counts relays that the server ended; those that a client ended are not counted.",
    ),
];

const CLOSE_REASONS: &[&str] = &[
    "normal",
    "deleted",
    "idle_timeout",
    "crashed",
    "released",
    "browser_restarted",
    "slow_reader",
    "oom",
    "browser_closed",
    "browser_hung",
    "node_drained",
    "engine_lost",
    "drain",
    "message_too_big",
    "unsupported_data",
    "protocol_error",
    "policy",
    "node_unreachable",
    "too_many_viewers",
];

const EGRESS: &[Metric] = &[
    metric(
        Kind::Counter,
        "casement_egress_requests_total",
        "requests",
        &[],
        "Counts the requests and tunnels that sandboxes opened through the egress proxy.",
    ),
    metric(
        Kind::Counter,
        "casement_egress_refused_total",
        "requests",
        &[],
        "Counts the requests of sandboxes that the egress rules refused.",
    ),
    metric(
        Kind::Counter,
        "casement_egress_bytes_total",
        "bytes",
        &[label("direction", "the direction", &["from_sessions", "to_sessions"])],
        "Counts the bytes between sandboxes and networks, including heads.",
    ),
    metric(
        Kind::Gauge,
        "casement_egress_connections",
        "connections",
        &[],
        "Shows the open connections of sandboxes to the egress proxy.",
    ),
];

const TELEMETRY: &[Metric] = &[
    metric(Kind::Counter, "casement_telemetry_events_total", "events", &[], "Counts stored telemetry events."),
    metric(
        Kind::Counter,
        "casement_telemetry_events_lost_total",
        "events",
        &[],
        "Counts telemetry events that were lost, for any reason.",
    ),
    metric(
        Kind::Counter,
        "casement_telemetry_limited_total",
        "batches",
        &[label(
            "limit",
            "the storage budget, or `disk` for the disk reserve",
            &["session", "project", "node", "disk"],
        )],
        "Counts batches of telemetry events of which a storage budget or the disk reserve refused some.",
    ),
    metric(
        Kind::Counter,
        "casement_telemetry_write_failures_total",
        "attempts",
        &[],
        "Counts failed attempts to store telemetry events; each is repeated.",
    ),
    metric(
        Kind::Gauge,
        "casement_telemetry_followed_sessions",
        "sessions",
        &[],
        "Shows the sessions whose telemetry somebody follows.",
    ),
    metric(
        Kind::Counter,
        "casement_telemetry_slow_followers_total",
        "followers",
        &[],
        "Counts followers of telemetry that were disconnected because they read too slowly.",
    ),
];

const OTLP: &[Metric] = &[
    metric(
        Kind::Counter,
        "casement_otlp_events_exported_total",
        "events",
        &[],
        "Counts telemetry events that the OpenTelemetry collector accepted.",
    ),
    metric(
        Kind::Counter,
        "casement_otlp_events_lost_total",
        "events",
        &[label(
            "reason",
            "`no_room`: the queue was full; `refused`: the collector refused them; `stopped`: the server stopped; \
             `unconfirmed`: the database did not confirm that it stored them",
            &["no_room", "refused", "stopped", "unconfirmed"],
        )],
        "Counts telemetry events that were not exported and will not be.",
    ),
    metric(
        Kind::Counter,
        "casement_trace_spans_exported_total",
        "spans",
        &[],
        "Counts spans of traces that the collector has accepted.",
    ),
    metric(
        Kind::Counter,
        "casement_trace_spans_lost_total",
        "spans",
        &[label(
            "reason",
            "`no_room`: the queue was full; `refused`: the collector refused them; `unreachable`: the collector did \
             not accept them in five attempts",
            &["no_room", "refused", "unreachable"],
        )],
        "Counts spans of traces that were not exported and will not be.",
    ),
    metric(
        Kind::Counter,
        "casement_otlp_failures_total",
        "attempts",
        &[],
        "Counts failed attempts to export a batch of telemetry events; each is repeated.",
    ),
    metric(
        Kind::Gauge,
        "casement_otlp_events_waiting",
        "events",
        &[],
        "Shows the telemetry events that wait for their export.",
    ),
    metric(
        Kind::Counter,
        "casement_telemetry_destination_events_exported_total",
        "events",
        &[],
        "Counts telemetry events that the destinations of their sessions accepted.",
    ),
    metric(
        Kind::Counter,
        "casement_telemetry_destination_events_lost_total",
        "events",
        &[label(
            "reason",
            "`no_room`: too many events that are not stored waited; `too_old`: they waited too long; `refused`: the \
             destination refused them; `gone`: the destination was deleted; `stopped`: the server stopped; \
             `unconfirmed`: the database did not confirm that it numbered them",
            &["no_room", "too_old", "refused", "gone", "stopped", "unconfirmed"],
        )],
        "Counts telemetry events that were not exported to their destination and will not be.",
    ),
    metric(
        Kind::Counter,
        "casement_telemetry_destination_failures_total",
        "attempts",
        &[],
        "Counts failed requests to telemetry destinations.",
    ),
];

const AUDIT: &[Metric] = &[
    metric(Kind::Counter, "casement_audit_records_lost_total", "records", &[], "Counts audit records that were lost."),
    metric(
        Kind::Counter,
        "casement_audit_write_failures_total",
        "attempts",
        &[],
        "Counts failed attempts to store a group of audit records or of audit intents.",
    ),
    metric(
        Kind::Counter,
        "casement_audit_export_records_total",
        "records",
        &[],
        "Counts audit records that were written to buckets; those of an object that is repeated count again.",
    ),
    metric(
        Kind::Counter,
        "casement_audit_export_failures_total",
        "attempts",
        &[],
        "Counts failed attempts to write audit records to a bucket.",
    ),
];

const DATABASE: &[Metric] = &[
    metric(
        Kind::Histogram,
        "casement_database_call_seconds",
        "seconds",
        &[
            DATABASE_OPERATION,
            label(
                "outcome",
                "`unavailable`: the same call may succeed later; `broken`: the database refused the call, or its answer \
                 cannot be read",
                &["ok", "unavailable", "broken"],
            ),
        ],
        "Measures the calls of the database, including the wait for a connection.",
    ),
    metric(
        Kind::Counter,
        "casement_database_listen_lost_total",
        "connections",
        &[],
        "Counts lost connections for notifications of the database, and failed attempts to open one.",
    ),
];

const STORAGE: &[Metric] = &[
    metric(
        Kind::Gauge,
        "casement_disk_free_bytes",
        "bytes",
        &[],
        "Shows the free space of the fullest disk of the data directory.",
    ),
    metric(
        Kind::Gauge,
        "casement_disk_low",
        "1",
        &[],
        "Is 1 while a disk has less free space than its reserve, so that telemetry, logs of apps and replays are not \
         stored; 0 otherwise.",
    ),
    metric(
        Kind::Gauge,
        "casement_blob_store_up",
        "1",
        &[],
        "Is 1 while the object store responds, and 0 while what needs it is refused; missing if files are in the data \
         directory.",
    ),
    metric(
        Kind::Gauge,
        "casement_stored_bytes",
        "bytes",
        &[],
        "Shows the stored telemetry and logs of apps that this node has written.",
    ),
];
