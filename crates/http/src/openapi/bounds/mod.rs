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
    browser::Viewport,
    computer,
    credential::{self, TotpAlgorithm},
    credential_provider,
    credential_provider::CredentialProvider,
    curl,
    deployment::{self, Entrypoint},
    extension,
    fs::{self, AbsolutePath, FileMode},
    invocation,
    login_page::HostPattern,
    name::{self, LabelName, SlugName},
    network, node,
    permission::{self, Policy},
    pool, process, project,
    proxy::{self, BypassHost, ProxyType},
    replay::NewReplay,
    script, session, telemetry,
    telemetry_destination::HEADER_NAME_PATTERN,
    web_url,
    webmcp::{NewCustomTools, NewToolCall},
};
use serde_json::{Value, json};

use forms::{
    NO_NUL, allowed_hosts, coordinate, engine, formed, headers, held_keys, hosts, items, items_of, label,
    label_in_path, map, memory, one_given, one_given_or_null, one_of, path, plain, private_hosts, range, region, side,
    slug, start_url, tags, text,
};

use crate::process::BASE64_PATTERN;

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
            (schema, "prefix", formed(audit_destination::PREFIX_PATTERN, audit_destination::MAX_PREFIX)),
            (schema, "region", formed(audit_destination::REGION_PATTERN, audit_destination::MAX_REGION)),
            (schema, "kms_key_id", formed(audit_destination::KEY_PATTERN, audit_destination::MAX_KEY)),
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
        ("CreateBrowser", "name", label_in_path()),
        ("CreateBrowser", "timeout_seconds", range(session::MIN_TIMEOUT_SECONDS.into(), session::MAX_TIMEOUT_SECONDS)),
        ("CreateBrowser", "extensions", items_of(0, extension::MAX_LOADED_AT_ONCE, one_given())),
        ("CreateBrowser", "profile", one_given_or_null()),
        ("CreateBrowser", "start_url", start_url(false)),
        ("CreateBrowser", "tags", tags()),
        ("UpdateBrowser", "name", json!({"pattern": format!("^$|{}", LabelName::PATTERN_IN_PATH)})),
        ("UpdateBrowser", "profile", one_given_or_null()),
        ("UpdateBrowser", "tags", tags()),
        ("UpdateBrowser", "start_url", start_url(true)),
        ("CreateBrowser", "engine", engine()),
        ("BrowserPoolInput", "engine", engine()),
        ("CasementOptions", "engine", engine()),
        ("CreateBrowser", "memory", memory()),
        ("CreateBrowser", "region", region()),
        ("BrowserPoolInput", "memory", memory()),
        ("BrowserPoolInput", "region", region()),
        ("BrowserNetworkInput", "allowed_hosts", allowed_hosts()),
        ("BrowserNetworkInput", "private_hosts", private_hosts(network::MAX_PRIVATE_HOSTS)),
        ("BrowserNetworkInput", "proxy_routes", items(0, network::MAX_PROXY_ROUTES)),
        ("BrowserNetworkUpdate", "allowed_hosts", allowed_hosts()),
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
        ("CasementOptions", "name", label_in_path()),
        ("CasementOptions", "extensions", items(0, extension::MAX_LOADED_AT_ONCE)),
        ("CasementOptions", "start_url", start_url(false)),
        ("CasementOptions", "tags", tags()),
        ("ViewportInput", "width", side()),
        ("ViewportInput", "height", side()),
        ("ViewportInput", "refresh_rate", range(1, Viewport::MAX_REFRESH_RATE)),
        ("Telemetry", "browser", json!({"propertyNames": {"enum": categories}})),
    ]
}

fn pools() -> Vec<FieldBound> {
    vec![
        ("BrowserPoolInput", "name", json!({"pattern": format!("^$|{}", SlugName::PATTERN)})),
        ("BrowserPoolInput", "size", range(1, pool::MAX_SIZE)),
        ("BrowserPoolInput", "fill_rate_per_minute", range(1, pool::MAX_FILL_RATE_PERCENT)),
        (
            "BrowserPoolInput",
            "timeout_seconds",
            range(session::MIN_TIMEOUT_SECONDS.into(), session::MAX_TIMEOUT_SECONDS),
        ),
        ("BrowserPoolInput", "profile", one_given_or_null()),
        ("BrowserPoolInput", "extensions", items_of(0, extension::MAX_LOADED_AT_ONCE, one_given())),
        ("BrowserPoolInput", "start_url", start_url(true)),
        ("AcquireBrowser", "name", label_in_path()),
        ("AcquireBrowser", "acquire_timeout_seconds", range(0, pool::MAX_WAIT_SECONDS)),
        ("AcquireBrowser", "profile", one_given_or_null()),
        ("AcquireBrowser", "start_url", start_url(false)),
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
        ("CreateOtlpDestination", "endpoint", json!({"pattern": web_url::PATTERN})),
        ("CreateOtlpDestination", "headers", headers()),
        ("UpdateOtlpDestination", "name", label_in_path()),
        ("UpdateOtlpDestination", "description", json!({"maxLength": 1024})),
        ("UpdateOtlpDestination", "endpoint", json!({"pattern": web_url::PATTERN})),
        ("UpdateOtlpDestination", "headers", json!({"propertyNames": {"pattern": HEADER_NAME_PATTERN}})),
        ("ProjectLimitsChanges", "max_concurrent_invocations", range(0, project::MAX_LIMIT)),
        ("ProjectLimitsChanges", "max_concurrent_sessions", range(0, project::MAX_LIMIT)),
        ("ProjectLimitsChanges", "max_pooled_sessions", range(0, project::MAX_LIMIT)),
        ("OrganizationLimitsChanges", "default_project_max_concurrent_sessions", range(0, project::MAX_LIMIT)),
    ]
}

fn logins() -> Vec<FieldBound> {
    let interval = || range(auth_connection::Settings::MIN_INTERVAL.into(), auth_connection::Settings::MAX_INTERVAL);
    let domains = || items_of(0, auth_connection::MAX_DOMAINS, json!({"pattern": HostPattern::PATTERN}));
    let values = || map(credential::MAX_VALUES, plain(credential::MAX_KEY), text(0, credential::MAX_VALUE));
    let submitted = || map(auth_connection::MAX_VALUES, json!({}), text(0, auth_connection::MAX_VALUE_BYTES));
    let algorithm = || one_of(&TotpAlgorithm::ALL.map(TotpAlgorithm::as_str));
    let digits = || range(credential::MIN_DIGITS.into(), credential::MAX_DIGITS.into());
    let period = || range(1, credential::MAX_PERIOD_SECONDS.into());
    let ttl = || range(0, credential_provider::MAX_TTL_SECONDS);
    let projects = || items(0, CredentialProvider::MAX_PROJECTS);
    vec![
        ("CreateAuthConnection", "domain", json!({"pattern": credential::DOMAIN_PATTERN})),
        ("CreateAuthConnection", "profile_name", slug()),
        ("CreateAuthConnection", "allowed_domains", domains()),
        ("CreateAuthConnection", "health_check_interval", interval()),
        ("CreateAuthConnection", "login_url", json!({"pattern": web_url::PATTERN_OR_NONE})),
        ("UpdateAuthConnection", "allowed_domains", domains()),
        ("UpdateAuthConnection", "health_check_interval", interval()),
        ("UpdateAuthConnection", "login_url", json!({"pattern": web_url::PATTERN_OR_NONE})),
        ("AuthCredentialReference", "name", text(1, auth_connection::MAX_TEXT)),
        ("AuthCredentialReference", "path", text(1, auth_connection::MAX_TEXT)),
        ("AuthCredentialReference", "provider", text(1, auth_connection::MAX_TEXT)),
        ("SubmitAuthConnection", "field_values", submitted()),
        ("SubmitAuthConnection", "fields", submitted()),
        ("CreateCredential", "name", label_in_path()),
        ("CreateCredential", "domain", json!({"pattern": credential::DOMAIN_PATTERN})),
        ("CreateCredential", "sso_provider", json!({"pattern": credential::PROVIDER_PATTERN})),
        ("CreateCredential", "totp_secret", formed(credential::TOTP_PATTERN, credential::MAX_TOTP_SECRET)),
        ("CreateCredential", "values", values()),
        ("CreateCredential", "totp_algorithm", algorithm()),
        ("CreateCredential", "totp_digits", digits()),
        ("CreateCredential", "totp_period", period()),
        ("UpdateCredential", "totp_algorithm", algorithm()),
        ("UpdateCredential", "totp_digits", digits()),
        ("UpdateCredential", "totp_period", period()),
        ("UpdateCredential", "name", label_in_path()),
        ("UpdateCredential", "sso_provider", json!({"pattern": credential::PROVIDER_PATTERN})),
        ("UpdateCredential", "totp_secret", formed(credential::TOTP_PATTERN, credential::MAX_TOTP_SECRET)),
        ("UpdateCredential", "values", values()),
        ("UpdateCredential", "remove_value_keys", items_of(0, credential::MAX_VALUES, text(1, credential::MAX_KEY))),
        ("CreateCredentialProvider", "name", label()),
        ("CreateCredentialProvider", "provider_type", one_of(&["passwordmanager", "onepassword", "keepass"])),
        ("CreateCredentialProvider", "token", text(1, credential_provider::MAX_TOKEN)),
        ("CreateCredentialProvider", "server_url", formed(web_url::PATTERN, credential_provider::MAX_URL)),
        ("CreateCredentialProvider", "cache_ttl_seconds", ttl()),
        ("CreateCredentialProvider", "project_ids", projects()),
        ("UpdateCredentialProvider", "name", label()),
        ("UpdateCredentialProvider", "token", text(1, credential_provider::MAX_TOKEN)),
        ("UpdateCredentialProvider", "server_url", formed(web_url::PATTERN, credential_provider::MAX_URL)),
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
        ("UpdateInvocation", "status", one_of(&["succeeded", "failed"])),
        ("UpdateInvocation", "output", json_text()),
        ("DeploymentForm", "region", json!({"pattern": deployment::REGION_PATTERN})),
        ("DeploymentForm", "version", plain(deployment::MAX_VERSION)),
        ("DeploymentForm", "entrypoint_rel_path", formed(Entrypoint::PATTERN, deployment::MAX_ENTRYPOINT)),
        (
            "DeploymentForm",
            "env_vars",
            map(
                deployment::MAX_VARIABLES,
                json!({"pattern": deployment::VARIABLE_PATTERN}),
                formed(NO_NUL, deployment::MAX_VALUE),
            ),
        ),
        ("GitSource", "type", one_of(&["github"])),
        ("GitSource", "url", formed(web_url::PATTERN, deployment::MAX_URL)),
        ("GitSource", "ref", text(1, deployment::MAX_REF)),
        ("GitSource", "entrypoint", formed(Entrypoint::PATTERN, deployment::MAX_ENTRYPOINT)),
        ("GitAuth", "method", one_of(&["github_token"])),
        ("GitAuth", "token", formed(deployment::TOKEN_PATTERN, deployment::MAX_TOKEN)),
    ]
}

fn inside() -> Vec<FieldBound> {
    // The kernel's limits include the terminating NUL.
    let command = || json!({"pattern": NO_NUL, "minLength": 1, "maxLength": process::MAX_WORD - 1});
    let arguments = || items_of(0, process::MAX_ARGS, formed(NO_NUL, process::MAX_WORD - 1));
    let environment = || json!({"maxProperties": process::MAX_ENV});
    let seconds = || range(1, process::MAX_SECONDS);
    let side = || range(1, process::MAX_SIDE);
    let as_user = || one_of(&["casement"]);
    let cwd = || formed(AbsolutePath::PATTERN, process::MAX_PATH - 1);
    let mode = || json!({"pattern": FileMode::PATTERN});
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
        ("WriteProcessStdin", "data_b64", formed(BASE64_PATTERN, process::MAX_STDIN.div_ceil(3) * 4)),
        ("ExecuteScript", "code", text(1, script::MAX_CODE)),
        ("ExecuteScript", "timeout_sec", range(1, script::MAX_TIMEOUT_SECONDS)),
        ("ExecuteScript", "executor", formed(script::ExecutorName::PATTERN, script::ExecutorName::MAX_LENGTH)),
        ("EvaluateCode", "code", text(0, script::MAX_CODE)),
        ("EvaluateCode", "timeout_sec", range(1, script::MAX_TIMEOUT_SECONDS)),
        ("InvokeTool", "tool_ref", text(1, NewToolCall::MAX_REFERENCE)),
        ("InvokeTool", "timeout_sec", range(1, NewToolCall::MAX_TIMEOUT_SECONDS)),
        ("AddCustomTools", "namespace", formed(NewCustomTools::NAMESPACE_PATTERN, NewCustomTools::MAX_NAMESPACE)),
        ("AddCustomTools", "source", text(1, NewCustomTools::MAX_SOURCE)),
        ("StartReplay", "framerate", range(1, NewReplay::MAX_FRAMERATE)),
        ("StartReplay", "max_duration_in_seconds", range(1, NewReplay::MAX_DURATION_SECONDS)),
        ("CurlBrowser", "url", formed(web_url::PATTERN, curl::MAX_URL)),
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
        ("CreateProxy", "bypass_hosts", items_of(0, proxy::MAX_BYPASS_HOSTS, json!({"pattern": BypassHost::PATTERN}))),
        ("CreateProxyConfig", "host", json!({"pattern": proxy::HOST_PATTERN})),
        ("CreateProxyConfig", "port", range(1, u16::MAX.into())),
        ("CreateProxyConfig", "username", credential()),
        ("CreateProxyConfig", "password", credential()),
        ("CreateProxyConfig", "country", json!({"pattern": proxy::TWO_LETTERS_PATTERN})),
        ("CreateProxyConfig", "state", json!({"pattern": proxy::TWO_LETTERS_PATTERN})),
        ("CreateProxyConfig", "city", json!({"pattern": proxy::CITY_PATTERN})),
        ("CreateProxyConfig", "zip", json!({"pattern": proxy::ZIP_PATTERN})),
        ("CreateProxyConfig", "asn", json!({"pattern": proxy::ASN_PATTERN})),
        ("CreateProxyConfig", "os", one_of(&["windows", "macos", "android"])),
        ("CheckProxy", "url", json!({"pattern": web_url::PATTERN})),
        ("ProxyChanges", "name", label()),
    ]
}
