//! The bounds of requests in the document: ranges, lengths, closed lists and formats.
//!
//! They are the domain's own constants, so that a caller's tools refuse what the server refuses.

mod conditions;
mod forms;
mod parameters;

use casement_domain::{
    api_key,
    audit_destination::{self, AuditExportStatus},
    auth_connection,
    browser::{StartUrl, Viewport},
    computer,
    credential::{self, TotpAlgorithm},
    credential_provider,
    credential_provider::CredentialProvider,
    curl, deployment, extension, fs, invocation, name, network, node,
    permission::{self, Policy},
    pool, process, project,
    proxy::{self, ProxyType},
    replay::NewReplay,
    script, session, telemetry,
    webmcp::{NewCustomTools, NewToolCall},
};
use serde_json::{Value, json};

use forms::{
    ABSOLUTE_PATH, ALLOWED_DOMAIN, ANY_URL, BASE32, BASE64, BYPASS_HOST, HEADER_NAME, HOST_NAME, HTTP_URL, LABEL,
    NO_NUL, OCTAL_MODE, PACKAGE_PATH, PLAIN, SLUG_OR_EMPTY, coordinate, destinations, engine, formed, headers,
    held_keys, hosts, items, items_of, label, label_in_path, map, memory, one_given, one_given_or_null, one_of, path,
    plain, private_hosts, range, region, side, slug, tags, text,
};

pub(super) use conditions::conditions;
pub(super) use parameters::{any_text, operation_parameters, parameters};

/// The bounds of one field of a schema.
pub(super) type FieldBound = (&'static str, &'static str, Value);

/// Returns the bounds of all fields of requests.
pub(super) fn fields() -> Vec<FieldBound> {
    [
        audit_destinations(),
        sessions(),
        pools(),
        keys_and_projects(),
        vec![("DrainNode", "deadline_seconds", range(0, node::MAX_DRAIN_SECONDS))],
        logins(),
        apps(),
        inside(),
        mouse_and_keyboard(),
        proxies(),
    ]
    .concat()
}

fn audit_destinations() -> Vec<FieldBound> {
    let status: Vec<_> = AuditExportStatus::ALL.iter().map(|status| status.as_str()).collect();
    let of = |schema| {
        [
            (schema, "bucket", text(3, 63)),
            (schema, "prefix", formed(forms::OBJECT_PREFIX, audit_destination::MAX_PREFIX)),
            (schema, "region", formed(forms::BUCKET_REGION, audit_destination::MAX_REGION)),
            (schema, "kms_key_id", formed("^[A-Za-z0-9:/_-]*$", audit_destination::MAX_KEY)),
        ]
    };
    let mut bounds = vec![
        ("CreateAuditLogExportDestination", "type", one_of(&["s3"])),
        ("CreateAuditLogExportDestination", "format", one_of(&["jsonl.gz"])),
        ("UpdateAuditLogExportDestination", "status", one_of(&status)),
    ];
    bounds.extend(["CreateAuditLogExportDestination", "UpdateAuditLogExportDestination"].into_iter().flat_map(of));
    bounds
}

fn sessions() -> Vec<FieldBound> {
    let categories: Vec<_> = telemetry::Category::ALL.iter().map(|category| category.as_str()).collect();
    vec![
        ("CreateBrowser", "name", label()),
        ("CreateBrowser", "timeout_seconds", range(session::MIN_TIMEOUT_SECONDS.into(), session::MAX_TIMEOUT_SECONDS)),
        ("CreateBrowser", "extensions", items_of(0, extension::MAX_LOADED_AT_ONCE, one_given())),
        ("CreateBrowser", "profile", one_given_or_null()),
        ("CreateBrowser", "start_url", formed(ANY_URL, StartUrl::MAX_LENGTH)),
        ("CreateBrowser", "tags", tags()),
        ("UpdateBrowser", "name", formed(&format!("^$|{LABEL}"), name::MAX_LENGTH)),
        ("UpdateBrowser", "profile", one_given_or_null()),
        ("UpdateBrowser", "tags", tags()),
        ("UpdateBrowser", "start_url", formed(&format!("^$|{ANY_URL}"), StartUrl::MAX_LENGTH)),
        ("CreateBrowser", "engine", engine()),
        ("BrowserPoolInput", "engine", engine()),
        ("CasementOptions", "engine", engine()),
        ("CreateBrowser", "memory", memory()),
        ("CreateBrowser", "region", region()),
        ("BrowserPoolInput", "memory", memory()),
        ("BrowserPoolInput", "region", region()),
        ("BrowserNetworkInput", "allowed_hosts", destinations(1, network::MAX_ALLOWED_HOSTS)),
        ("BrowserNetworkInput", "private_hosts", private_hosts(network::MAX_PRIVATE_HOSTS)),
        ("BrowserNetworkInput", "proxy_routes", items(0, network::MAX_PROXY_ROUTES)),
        ("BrowserNetworkUpdate", "allowed_hosts", destinations(1, network::MAX_ALLOWED_HOSTS)),
        ("BrowserNetworkUpdate", "expected_allowlist_revision", plain(name::MAX_LENGTH)),
        ("BrowserNetworkUpdate", "mutation_id", plain(name::MAX_LENGTH)),
        ("BrowserProxyRouteInput", "proxy", one_given()),
        ("BrowserProxyRouteInput", "hosts", hosts(1, network::MAX_ROUTED_HOSTS)),
        ("BrowserProxySelection", "mode", one_of(&["direct", "default"])),
        ("CasementOptions", "acquire_timeout_seconds", range(0, pool::MAX_WAIT_SECONDS)),
        (
            "CasementOptions",
            "timeout_seconds",
            range(session::MIN_TIMEOUT_SECONDS.into(), session::MAX_TIMEOUT_SECONDS),
        ),
        ("CasementOptions", "name", label()),
        ("CasementOptions", "extensions", items(0, extension::MAX_LOADED_AT_ONCE)),
        ("CasementOptions", "start_url", formed(ANY_URL, StartUrl::MAX_LENGTH)),
        ("CasementOptions", "tags", tags()),
        ("ViewportInput", "width", side()),
        ("ViewportInput", "height", side()),
        ("ViewportInput", "refresh_rate", range(1, Viewport::MAX_REFRESH_RATE)),
        ("Telemetry", "browser", json!({"propertyNames": {"enum": categories}})),
    ]
}

fn pools() -> Vec<FieldBound> {
    vec![
        ("BrowserPoolInput", "name", formed(SLUG_OR_EMPTY, name::MAX_LENGTH)),
        ("BrowserPoolInput", "size", range(1, pool::MAX_SIZE)),
        ("BrowserPoolInput", "fill_rate_per_minute", range(1, pool::MAX_FILL_RATE_PERCENT)),
        (
            "BrowserPoolInput",
            "timeout_seconds",
            range(session::MIN_TIMEOUT_SECONDS.into(), session::MAX_TIMEOUT_SECONDS),
        ),
        ("BrowserPoolInput", "profile", one_given_or_null()),
        ("BrowserPoolInput", "extensions", items_of(0, extension::MAX_LOADED_AT_ONCE, one_given())),
        ("BrowserPoolInput", "start_url", formed(&format!("^$|{ANY_URL}"), StartUrl::MAX_LENGTH)),
        ("AcquireBrowser", "name", label()),
        ("AcquireBrowser", "acquire_timeout_seconds", range(0, pool::MAX_WAIT_SECONDS)),
        ("AcquireBrowser", "profile", one_given_or_null()),
        ("AcquireBrowser", "start_url", formed(ANY_URL, StartUrl::MAX_LENGTH)),
        ("AcquireBrowser", "tags", tags()),
        ("ProfileInput", "name", slug()),
        ("UploadExtension", "name", slug()),
    ]
}

fn keys_and_projects() -> Vec<FieldBound> {
    let days = |low| range(low, api_key::MAX_DAYS);
    vec![
        ("ApiKeyPolicyInput", "statements", items(0, Policy::MAX_STATEMENTS)),
        ("ApiKeyStatementInput", "resource", text(1, permission::MAX_RESOURCE)),
        ("CreateApiKey", "name", label()),
        ("CreateApiKey", "days_to_expire", days(1)),
        ("RenameApiKey", "name", label()),
        ("RotateApiKey", "days_to_expire", days(1)),
        ("RotateApiKey", "expire_in_days", days(0)),
        ("CreateProject", "name", label_in_path()),
        ("ProjectChanges", "name", label_in_path()),
        ("ProjectChanges", "status", one_of(&["active", "archived"])),
        ("CreateOtlpDestination", "name", label_in_path()),
        ("CreateOtlpDestination", "description", json!({"maxLength": 1024})),
        ("CreateOtlpDestination", "endpoint", json!({"pattern": HTTP_URL})),
        ("CreateOtlpDestination", "headers", headers()),
        ("UpdateOtlpDestination", "name", label_in_path()),
        ("UpdateOtlpDestination", "description", json!({"maxLength": 1024})),
        ("UpdateOtlpDestination", "endpoint", json!({"pattern": HTTP_URL})),
        ("UpdateOtlpDestination", "headers", json!({"propertyNames": {"pattern": HEADER_NAME}})),
        ("ProjectLimitsChanges", "max_concurrent_invocations", range(0, project::MAX_LIMIT)),
        ("ProjectLimitsChanges", "max_concurrent_sessions", range(0, project::MAX_LIMIT)),
        ("ProjectLimitsChanges", "max_pooled_sessions", range(0, project::MAX_LIMIT)),
        ("OrganizationLimitsChanges", "default_project_max_concurrent_sessions", range(0, project::MAX_LIMIT)),
    ]
}

fn logins() -> Vec<FieldBound> {
    let interval = || range(auth_connection::Settings::MIN_INTERVAL.into(), auth_connection::Settings::MAX_INTERVAL);
    let domains = || items_of(0, auth_connection::MAX_DOMAINS, formed(ALLOWED_DOMAIN, 253));
    let values = || map(credential::MAX_VALUES, plain(credential::MAX_KEY), text(0, credential::MAX_VALUE));
    let submitted = || map(auth_connection::MAX_VALUES, json!({}), text(0, auth_connection::MAX_VALUE_BYTES));
    let algorithm = || one_of(&TotpAlgorithm::ALL.map(TotpAlgorithm::as_str));
    let digits = || range(credential::MIN_DIGITS.into(), credential::MAX_DIGITS.into());
    let period = || range(1, credential::MAX_PERIOD_SECONDS.into());
    let ttl = || range(0, credential_provider::MAX_TTL_SECONDS);
    let projects = || items(0, CredentialProvider::MAX_PROJECTS);
    vec![
        ("CreateAuthConnection", "domain", formed(HOST_NAME, 253)),
        ("CreateAuthConnection", "profile_name", slug()),
        ("CreateAuthConnection", "allowed_domains", domains()),
        ("CreateAuthConnection", "health_check_interval", interval()),
        ("CreateAuthConnection", "login_url", formed(&format!("^$|{HTTP_URL}"), auth_connection::MAX_URL)),
        ("UpdateAuthConnection", "allowed_domains", domains()),
        ("UpdateAuthConnection", "health_check_interval", interval()),
        ("UpdateAuthConnection", "login_url", formed(&format!("^$|{HTTP_URL}"), auth_connection::MAX_URL)),
        ("AuthCredentialReference", "name", text(1, auth_connection::MAX_TEXT)),
        ("AuthCredentialReference", "path", text(1, auth_connection::MAX_TEXT)),
        ("AuthCredentialReference", "provider", text(1, auth_connection::MAX_TEXT)),
        ("SubmitAuthConnection", "field_values", submitted()),
        ("SubmitAuthConnection", "fields", submitted()),
        ("CreateCredential", "name", label_in_path()),
        ("CreateCredential", "domain", formed(HOST_NAME, 253)),
        ("CreateCredential", "sso_provider", formed(PLAIN, credential::MAX_PROVIDER)),
        ("CreateCredential", "totp_secret", formed(&format!("^$|{BASE32}"), credential::MAX_TOTP_SECRET)),
        ("CreateCredential", "values", values()),
        ("CreateCredential", "totp_algorithm", algorithm()),
        ("CreateCredential", "totp_digits", digits()),
        ("CreateCredential", "totp_period", period()),
        ("UpdateCredential", "totp_algorithm", algorithm()),
        ("UpdateCredential", "totp_digits", digits()),
        ("UpdateCredential", "totp_period", period()),
        ("UpdateCredential", "name", label_in_path()),
        ("UpdateCredential", "sso_provider", formed(PLAIN, credential::MAX_PROVIDER)),
        ("UpdateCredential", "totp_secret", formed(&format!("^$|{BASE32}"), credential::MAX_TOTP_SECRET)),
        ("UpdateCredential", "values", values()),
        ("UpdateCredential", "remove_value_keys", items_of(0, credential::MAX_VALUES, text(1, credential::MAX_KEY))),
        ("CreateCredentialProvider", "name", label_in_path()),
        ("CreateCredentialProvider", "provider_type", one_of(&["passwordmanager", "onepassword", "keepass"])),
        ("CreateCredentialProvider", "token", text(1, credential_provider::MAX_TOKEN)),
        ("CreateCredentialProvider", "server_url", formed(HTTP_URL, credential_provider::MAX_URL)),
        ("CreateCredentialProvider", "cache_ttl_seconds", ttl()),
        ("CreateCredentialProvider", "project_ids", projects()),
        ("UpdateCredentialProvider", "name", label_in_path()),
        ("UpdateCredentialProvider", "token", text(1, credential_provider::MAX_TOKEN)),
        ("UpdateCredentialProvider", "server_url", formed(HTTP_URL, credential_provider::MAX_URL)),
        ("UpdateCredentialProvider", "cache_ttl_seconds", ttl()),
        ("UpdateCredentialProvider", "priority", range(0, CredentialProvider::LAST_PRIORITY)),
        ("UpdateCredentialProvider", "project_ids", projects()),
    ]
}

fn apps() -> Vec<FieldBound> {
    let name = || plain(invocation::MAX_NAME);
    let json_text =
        || json!({"minLength": 1, "maxLength": invocation::MAX_JSON, "contentMediaType": "application/json"});
    vec![
        ("CreateInvocation", "app_name", name()),
        ("CreateInvocation", "action_name", name()),
        ("CreateInvocation", "version", name()),
        ("CreateInvocation", "payload", json_text()),
        (
            "CreateInvocation",
            "async_timeout_seconds",
            range(invocation::MIN_TIMEOUT_SECONDS.into(), invocation::MAX_TIMEOUT_SECONDS),
        ),
        ("UpdateInvocation", "status", one_of(&["succeeded", "failed"])),
        ("UpdateInvocation", "output", json_text()),
        ("DeploymentForm", "region", json!({"pattern": r"^[a-z0-9-]+\.[a-z0-9_-]+$"})),
        ("DeploymentForm", "version", plain(deployment::MAX_VERSION)),
        ("DeploymentForm", "entrypoint_rel_path", formed(PACKAGE_PATH, deployment::MAX_ENTRYPOINT)),
        (
            "DeploymentForm",
            "env_vars",
            map(
                deployment::MAX_VARIABLES,
                json!({"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,127}$"}),
                formed(NO_NUL, deployment::MAX_VALUE),
            ),
        ),
        ("GitSource", "type", one_of(&["github"])),
        ("GitSource", "url", formed(HTTP_URL, deployment::MAX_URL)),
        ("GitSource", "ref", text(1, deployment::MAX_REF)),
        ("GitSource", "entrypoint", formed(PACKAGE_PATH, deployment::MAX_ENTRYPOINT)),
        ("GitAuth", "method", one_of(&["github_token"])),
        ("GitAuth", "token", json!({"pattern": "^[!-~]+$", "minLength": 1, "maxLength": deployment::MAX_TOKEN})),
    ]
}

fn inside() -> Vec<FieldBound> {
    let command = || json!({"pattern": NO_NUL, "minLength": 1, "maxLength": process::MAX_WORD});
    let arguments = || items_of(0, process::MAX_ARGS, formed(NO_NUL, process::MAX_WORD));
    let environment = || json!({"maxProperties": process::MAX_ENV});
    let seconds = || range(1, process::MAX_SECONDS);
    let side = || range(1, process::MAX_SIDE);
    let as_user = || one_of(&["casement"]);
    let cwd = || formed(ABSOLUTE_PATH, process::MAX_PATH);
    let mode = || formed(OCTAL_MODE, 4);
    vec![
        ("ExecuteProcess", "command", command()),
        ("ExecuteProcess", "args", arguments()),
        ("ExecuteProcess", "env", environment()),
        ("ExecuteProcess", "timeout_sec", seconds()),
        ("ExecuteProcess", "as_user", as_user()),
        ("ExecuteProcess", "as_root", json!({"enum": [false]})),
        ("ExecuteProcess", "cwd", cwd()),
        ("SpawnProcess", "command", command()),
        ("SpawnProcess", "args", arguments()),
        ("SpawnProcess", "env", environment()),
        ("SpawnProcess", "timeout_sec", seconds()),
        ("SpawnProcess", "as_user", as_user()),
        ("SpawnProcess", "as_root", json!({"enum": [false]})),
        ("SpawnProcess", "cwd", cwd()),
        ("SpawnProcess", "cols", side()),
        ("SpawnProcess", "rows", side()),
        ("ResizeProcess", "cols", side()),
        ("ResizeProcess", "rows", side()),
        ("KillProcess", "signal", one_of(&["TERM", "KILL", "INT", "HUP"])),
        ("WriteProcessStdin", "data_b64", formed(BASE64, process::MAX_STDIN.div_ceil(3) * 4)),
        ("ExecuteScript", "code", text(1, script::MAX_CODE)),
        ("ExecuteScript", "timeout_sec", range(1, script::MAX_TIMEOUT_SECONDS)),
        ("ExecuteScript", "executor", formed(r"^(?!\.{1,2}$)[A-Za-z0-9._-]+$", script::ExecutorName::MAX_LENGTH)),
        ("EvaluateCode", "code", text(0, script::MAX_CODE)),
        ("EvaluateCode", "timeout_sec", range(1, script::MAX_TIMEOUT_SECONDS)),
        ("InvokeTool", "tool_ref", text(1, NewToolCall::MAX_REFERENCE)),
        ("InvokeTool", "timeout_sec", range(1, NewToolCall::MAX_TIMEOUT_SECONDS)),
        ("AddCustomTools", "namespace", formed("^[A-Za-z0-9_.-]+$", NewCustomTools::MAX_NAMESPACE)),
        ("AddCustomTools", "source", text(1, NewCustomTools::MAX_SOURCE)),
        ("StartReplay", "framerate", range(1, NewReplay::MAX_FRAMERATE)),
        ("StartReplay", "max_duration_in_seconds", range(1, NewReplay::MAX_DURATION_SECONDS)),
        ("CurlBrowser", "url", formed(HTTP_URL, curl::MAX_URL)),
        ("CurlBrowser", "method", one_of(&curl::METHODS)),
        ("CurlBrowser", "headers", json!({"maxProperties": curl::MAX_HEADERS})),
        ("CurlBrowser", "timeout_ms", range(1, curl::MAX_TIMEOUT_MS)),
        ("CurlBrowser", "response_encoding", one_of(&["utf8", "base64"])),
        ("CreateDirectory", "path", path()),
        ("CreateDirectory", "mode", mode()),
        ("FileForm", "dest_path", path()),
        ("MovePath", "src_path", path()),
        ("MovePath", "dest_path", path()),
        ("PathOfFile", "path", path()),
        ("SetFilePermissions", "path", path()),
        ("SetFilePermissions", "mode", mode()),
        ("SetFilePermissions", "owner", text(1, fs::MAX_PRINCIPAL)),
        ("SetFilePermissions", "group", text(1, fs::MAX_PRINCIPAL)),
        ("StartFsWatch", "path", path()),
        ("UploadZip", "dest_path", path()),
    ]
}

fn mouse_and_keyboard() -> Vec<FieldBound> {
    let pause = || range(0, computer::MAX_PAUSE_MS);
    let edge = || range(1, Viewport::MAX_SIDE);
    let steps = || json!({"minimum": -1000, "maximum": 1000});
    let actions =
        ["click_mouse", "move_mouse", "type_text", "press_key", "scroll", "drag_mouse", "set_cursor", "sleep"];
    let mut bounds = vec![
        ("Batch", "actions", items(1, computer::MAX_ACTIONS)),
        ("BatchAction", "type", one_of(&actions)),
        ("ClickMouse", "button", one_of(&["left", "middle", "right", "back", "forward"])),
        ("ClickMouse", "click_type", one_of(&["click", "down", "up"])),
        ("ClickMouse", "num_clicks", range(1, 10)),
        ("DragMouse", "button", one_of(&["left", "middle", "right"])),
        ("DragMouse", "delay", range(0, 10_000)),
        ("DragMouse", "step_delay_ms", range(0, 10_000)),
        ("DragMouse", "duration_ms", pause()),
        ("DragMouse", "steps_per_segment", range(1, 1_000)),
        ("DragMouse", "path", items_of(2, computer::MAX_PATH, items_of(2, 2, coordinate()))),
        ("MoveMouse", "duration_ms", pause()),
        ("PressKey", "duration", pause()),
        ("PressKey", "keys", items(1, computer::MAX_CHORDS)),
        ("Scroll", "delta_x", steps()),
        ("Scroll", "delta_y", steps()),
        ("Sleep", "duration_ms", pause()),
        ("TypeText", "text", json!({"maxLength": computer::MAX_TYPED})),
        ("TypeText", "delay", range(0, 5_000)),
        ("WriteClipboard", "text", json!({"maxLength": computer::MAX_CLIPBOARD})),
        ("RegionInput", "width", edge()),
        ("RegionInput", "height", edge()),
    ];
    for schema in ["ClickMouse", "DragMouse", "MoveMouse", "PressKey", "Scroll"] {
        bounds.push((schema, "hold_keys", held_keys()));
    }
    for schema in ["ClickMouse", "MoveMouse", "Scroll", "RegionInput"] {
        bounds.extend([(schema, "x", coordinate()), (schema, "y", coordinate())]);
    }
    bounds
}

fn proxies() -> Vec<FieldBound> {
    let kinds: Vec<_> = ProxyType::ALL.iter().map(|kind| kind.as_str()).collect();
    let credential = || plain(proxy::MAX_CREDENTIAL);
    vec![
        ("CreateProxy", "type", one_of(&kinds)),
        ("CreateProxy", "name", label()),
        ("CreateProxy", "protocol", one_of(&["http", "https", "socks5"])),
        ("CreateProxy", "bypass_hosts", items_of(0, proxy::MAX_BYPASS_HOSTS, json!({"pattern": BYPASS_HOST}))),
        ("CreateProxyConfig", "host", text(1, 253)),
        ("CreateProxyConfig", "port", range(1, u16::MAX.into())),
        ("CreateProxyConfig", "username", credential()),
        ("CreateProxyConfig", "password", credential()),
        ("CreateProxyConfig", "country", json!({"pattern": "^[A-Za-z]{2}$"})),
        ("CreateProxyConfig", "state", json!({"pattern": "^[A-Za-z]{2}$"})),
        ("CreateProxyConfig", "zip", json!({"pattern": "^[0-9]{5}$"})),
        ("CreateProxyConfig", "asn", json!({"pattern": "^AS[0-9]{1,10}$"})),
        ("CreateProxyConfig", "os", one_of(&["windows", "macos", "android"])),
        ("CheckProxy", "url", json!({"pattern": HTTP_URL})),
        ("ProxyChanges", "name", label()),
    ]
}
