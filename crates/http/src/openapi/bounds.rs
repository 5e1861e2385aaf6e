//! The bounds of requests in the document: ranges, lengths, closed lists and formats.
//!
//! They are the domain's own constants, so that a caller's tools refuse what the server refuses.

use casement_domain::{
    api_key, audit, auth_connection,
    browser::{BrowserRegion, StartUrl, Viewport},
    computer,
    credential::{self, TotpAlgorithm},
    credential_provider,
    credential_provider::CredentialProvider,
    curl, deployment, extension, fs, invocation, name, network,
    page::Page,
    permission::{self, Policy},
    pool, process, project,
    proxy::{self, ProxyType},
    replay::NewReplay,
    script, session, telemetry,
    webmcp::NewToolCall,
};
use serde_json::{Value, json};

/// The bounds of one field of a schema.
pub(super) type FieldBound = (&'static str, &'static str, Value);

fn range(low: i64, high: u32) -> Value {
    json!({"minimum": low, "maximum": high})
}

fn text(low: usize, high: usize) -> Value {
    json!({"minLength": low, "maxLength": high})
}

fn formed(pattern: &str, high: usize) -> Value {
    json!({"pattern": pattern, "maxLength": high})
}

fn items(low: usize, high: usize) -> Value {
    json!({"minItems": low, "maxItems": high})
}

fn items_of(low: usize, high: usize, item: Value) -> Value {
    json!({"minItems": low, "maxItems": high, "items": item})
}

fn map(high: usize, key: Value, value: Value) -> Value {
    json!({"maxProperties": high, "propertyNames": key, "additionalProperties": value})
}

fn one_of(words: &[&str]) -> Value {
    json!({"enum": words})
}

/// A name that is part of paths; it may not have the shape of an id.
const SLUG: &str = "^[A-Za-z0-9._-]+$";
/// The same, or an empty text, by which an update keeps the name.
const SLUG_OR_EMPTY: &str = "^[A-Za-z0-9._-]*$";
/// A name for people: no control characters, not only blanks.
const LABEL: &str = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$";
/// A name for people that is part of paths.
const LABEL_IN_PATH: &str = r"^[^/\x00-\x1f\x7f-\x9f]*[^/\s\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*$";
/// A text without control characters.
const PLAIN: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
/// A text without NUL.
const NO_NUL: &str = r"^[^\x00]*$";
const HOST_NAME: &str = r"^([A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$";
/// A host name in which a label may be `*` or `**`.
const ALLOWED_DOMAIN: &str =
    r"^((\*\*?|[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)\.)+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$";
/// A host name, `*.` and a host name, an address or a network.
const BYPASS_HOST: &str = r"^(\*\.)?([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$|^(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}(/([0-9]|[12][0-9]|3[0-2]))?$|^[0-9A-Fa-f:]*:[0-9A-Fa-f:]*(/[0-9]{1,3})?$";
/// An id of this service.
const ID: &str = "^[0-7][0-9a-hjkmnp-tv-z]{25}$";
/// An absolute URL of http or https.
const HTTP_URL: &str = r"^https?://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[1-9][0-9]{0,3})?(/[!-~]*)?$";
/// An absolute URL of any scheme but that of scripts.
const ANY_URL: &str =
    r"^(?![Jj][Aa][Vv][Aa][Ss][Cc][Rr][Ii][Pp][Tt]:)[A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x1f\x7f-\x9f]+$";
/// The URL of an extension's page in the Chrome Web Store.
const STORE_URL: &str = r"^https://chromewebstore\.google\.com/detail/([a-z-]+/)?[a-p]{32}$";
/// A path within a package.
const PACKAGE_PATH: &str = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*\.(py|ts|mts|js|mjs|cjs)$";
const ABSOLUTE_PATH: &str = r"^/[^\x00]*$";
const OCTAL_MODE: &str = "^[01]?[0-7]{3}$";
const BASE32: &str = "^([A-Za-z2-7]{8}){1,100}$";
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";
/// A date-time, or an age such as `5m`.
const DATE_TIME_OR_AGE: &str = r"^([0-9]{1,6}[smhd])+$|^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])([T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])?)?$";

fn slug() -> Value {
    json!({"pattern": SLUG, "minLength": 1, "maxLength": name::MAX_LENGTH})
}

fn label() -> Value {
    json!({"pattern": LABEL, "minLength": 1, "maxLength": name::MAX_LENGTH})
}

fn label_in_path() -> Value {
    json!({"pattern": LABEL_IN_PATH, "minLength": 1, "maxLength": name::MAX_LENGTH})
}

fn path() -> Value {
    formed(ABSOLUTE_PATH, fs::MAX_PATH_BYTES)
}

fn tags() -> Value {
    map(session::Tags::MAX_PAIRS, text(1, session::Tags::MAX_KEY), text(0, session::Tags::MAX_VALUE))
}

fn plain(high: usize) -> Value {
    json!({"pattern": PLAIN, "minLength": 1, "maxLength": high})
}

/// A reference with an id or a name.
fn one_given() -> Value {
    let given = |field: &str| json!({"required": [field], "properties": {field: {"type": "string"}}});
    json!({"anyOf": [given("id"), given("name")]})
}

fn memory() -> Value {
    one_of(&["1GiB", "2GiB", "4GiB", "8GiB", "16GiB"])
}

fn region() -> Value {
    one_of(&BrowserRegion::ALL.map(BrowserRegion::as_str))
}

fn hosts(low: usize, high: usize) -> Value {
    items_of(low, high, text(1, network::MAX_PATTERN))
}

fn side() -> Value {
    range(1, Viewport::MAX_SIDE)
}

/// A coordinate; the display of the session may be smaller.
fn coordinate() -> Value {
    range(0, Viewport::MAX_SIDE - 1)
}

fn held_keys() -> Value {
    items(0, computer::MAX_HELD)
}

/// Returns the bounds of all fields of requests.
pub(super) fn fields() -> Vec<FieldBound> {
    [sessions(), pools(), keys_and_projects(), logins(), apps(), inside(), mouse_and_keyboard(), proxies()].concat()
}

fn sessions() -> Vec<FieldBound> {
    let categories: Vec<_> = telemetry::Category::ALL.iter().map(|category| category.as_str()).collect();
    vec![
        ("CreateBrowser", "name", label()),
        ("CreateBrowser", "timeout_seconds", range(session::MIN_TIMEOUT_SECONDS.into(), session::MAX_TIMEOUT_SECONDS)),
        ("CreateBrowser", "extensions", items_of(0, extension::MAX_LOADED_AT_ONCE, one_given())),
        ("CreateBrowser", "start_url", formed(ANY_URL, StartUrl::MAX_LENGTH)),
        ("CreateBrowser", "tags", tags()),
        ("UpdateBrowser", "name", formed(&format!("^$|{LABEL}"), name::MAX_LENGTH)),
        ("UpdateBrowser", "profile", json!({"anyOf": [{"type": "null"}, one_given()]})),
        ("UpdateBrowser", "tags", tags()),
        ("UpdateBrowser", "start_url", formed(&format!("^$|{ANY_URL}"), StartUrl::MAX_LENGTH)),
        ("CreateBrowser", "memory", memory()),
        ("CreateBrowser", "region", region()),
        ("BrowserPoolInput", "memory", memory()),
        ("BrowserPoolInput", "region", region()),
        ("BrowserNetworkInput", "allowed_hosts", hosts(1, network::MAX_ALLOWED_HOSTS)),
        ("BrowserNetworkInput", "private_hosts", hosts(0, network::MAX_PRIVATE_HOSTS)),
        ("BrowserNetworkInput", "proxy_routes", items(0, network::MAX_PROXY_ROUTES)),
        ("BrowserNetworkUpdate", "allowed_hosts", hosts(1, network::MAX_ALLOWED_HOSTS)),
        ("BrowserNetworkUpdate", "mutation_id", text(1, name::MAX_LENGTH)),
        ("BrowserProxyRouteInput", "hosts", hosts(1, network::MAX_ROUTED_HOSTS)),
        ("BrowserProxySelection", "mode", one_of(&["direct", "default"])),
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
        ("BrowserPoolInput", "extensions", items_of(0, extension::MAX_LOADED_AT_ONCE, one_given())),
        ("BrowserPoolInput", "start_url", formed(&format!("^$|{ANY_URL}"), StartUrl::MAX_LENGTH)),
        ("AcquireBrowser", "name", label()),
        ("AcquireBrowser", "acquire_timeout_seconds", range(0, pool::MAX_WAIT_SECONDS)),
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
        ("UpdateOtlpDestination", "name", label_in_path()),
        ("UpdateOtlpDestination", "description", json!({"maxLength": 1024})),
        ("UpdateOtlpDestination", "endpoint", json!({"pattern": HTTP_URL})),
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

/// The bound of a query parameter of a text without other bounds: PostgreSQL refuses NUL.
pub(super) fn any_text() -> Value {
    json!({"pattern": NO_NUL})
}

/// Returns the bounds of query parameters by name. A parameter of several operations with different bounds is in
/// [`operation_parameters`].
pub(super) fn parameters() -> Vec<(&'static str, Value)> {
    let moment = || json!({"pattern": DATE_TIME_OR_AGE});
    // Larger numbers than the format has are beyond the end of every list too.
    let number = json!({"minimum": 0, "format": null});
    vec![
        ("limit", range(1, Page::MAX_LIMIT)),
        ("offset", number),
        ("since", moment()),
        ("until", moment()),
        ("path", path()),
        ("mode", formed(OCTAL_MODE, 4)),
        ("order", one_of(&["", "asc", "desc"])),
        ("replay", one_of(&["", "all"])),
        ("sort_by", one_of(&["created_at", "name", "expires_at"])),
        ("sort_direction", one_of(&["asc", "desc"])),
        ("source", one_of(&["path", "supervisor"])),
        ("supervisor_process", one_of(&["chromium", "display", "agent"])),
        ("os", one_of(&["linux", "win", "mac"])),
        ("search", json!({"maxLength": audit::MAX_SEARCH})),
        ("auth_strategy", json!({"maxLength": audit::MAX_VALUE})),
        ("service", json!({"maxLength": audit::MAX_VALUE})),
        ("method", json!({"maxLength": audit::MAX_VALUE})),
        ("exclude_method", items_of(0, audit::MAX_EXCLUDED, json!({"maxLength": audit::MAX_VALUE}))),
        ("search_user_id", items_of(0, audit::MAX_USERS, json!({"maxLength": audit::MAX_VALUE}))),
    ]
}

/// Returns the bounds of query parameters of single operations, by the id of the operation and the name.
pub(super) fn operation_parameters() -> Vec<(&'static str, &'static str, Value)> {
    let status = |words: &[&str]| one_of(words);
    let categories: Vec<_> = telemetry::EventCategory::ALL.iter().map(|category| category.as_str()).collect();
    vec![
        ("list_browsers", "status", status(&["active", "deleted", "all"])),
        ("list_api_keys", "status", status(&["active", "deleted", "all"])),
        ("list_invocations", "status", status(&["queued", "running", "succeeded", "failed"])),
        ("list_auth_connection_timeline", "type", one_of(&["login", "reauth", "health_check"])),
        ("list_audit_records", "limit", range(1, audit::Reading::List.max())),
        ("export_audit_chunk", "limit", range(1, audit::Reading::Export.max())),
        ("list_audit_records", "start", json!({"format": "date-time"})),
        ("list_audit_records", "end", json!({"format": "date-time"})),
        ("export_audit_chunk", "start", json!({"format": "date-time"})),
        ("export_audit_chunk", "end", json!({"format": "date-time"})),
        ("download_profile", "version", json!({"pattern": format!("^$|{ID}")})),
        ("download_profile", "format", one_of(&["tar.zst", "tar"])),
        ("export_audit_chunk", "format", one_of(&["jsonl", "jsonl.gz"])),
        ("extension_from_web_store", "url", json!({"pattern": STORE_URL})),
        ("list_telemetry_events", "category", json!({"items": {"enum": categories}})),
    ]
}

/// Returns rules between the fields of a schema.
pub(super) fn conditions() -> Vec<(&'static str, Value)> {
    let text = json!({"type": "string", "minLength": 1});
    let both = json!({"required": ["id", "name"], "properties": {"id": text, "name": text}});
    let address = json!({"host": {"type": "string"}, "port": {"type": "integer"}});
    let config = json!({"type": "object", "required": ["host", "port"], "properties": address});
    let own = json!({"required": ["config"], "properties": {"config": config}});
    let named = json!({"type": "object", "minProperties": 1});
    let vault = json!({"required": ["vault"], "properties": {"vault": {"type": "string"}}});
    let off =
        json!({"required": ["enabled", "browser"], "properties": {"enabled": {"const": false}, "browser": named}});
    vec![
        ("Reference", json!({"not": both})),
        ("ProfileReference", json!({"not": both})),
        ("AuthProxyReference", json!({"not": both})),
        ("CreateProxy", json!({"if": {"properties": {"type": {"const": "custom"}}}, "then": own})),
        (
            "CreateCredentialProvider",
            json!({"if": {"properties": {"provider_type": {"const": "keepass"}}}, "then": vault}),
        ),
        ("DeploymentForm", json!({"anyOf": [{"required": ["file", "entrypoint_rel_path"]}, {"required": ["source"]}]})),
        ("ProxyExit", json!({"not": {"required": ["host"]}})),
        ("Telemetry", json!({"not": off})),
    ]
}
