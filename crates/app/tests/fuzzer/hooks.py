"""Checks of the fuzzer that know what a JSON schema cannot say.

A request may follow its schema and still be refused: a field may name a resource that does not exist, ask for what this
installation does not have, or contradict another field. Such refusals are listed here; every other refusal of a valid
request is a failure.
"""

import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

# Reasons of single fields that depend on the state or on the configuration of the server.
OF_THE_SERVER = {
    "reference_not_found", "ambiguous", "ambiguous_proxy_name", "not_supported", "mutually_exclusive", "invalid_cursor",
    "blocked", "is_a_directory",
}

# Beginnings of messages that depend on time, on what the browser has, or on another field.
OF_ALL_OPERATIONS = (
    # A day that its month does not have, and an age of more than 30 days.
    "since: must be",
    "until: must be",
    "engine: must be one of",
    "location.",
    "network.private_hosts.",
    "network.allowed_hosts.",
    "expected_network.",
    # The hosts of all routes together are bounded.
    "network.proxy_routes: ",
    "network.proxy_routes.",
    "network.mutation_id: is required beside",
    "network.expected_allowlist_revision: is required beside",
    "telemetry.storage.enabled: needs a capture",
    "telemetry.export.otlp.destination: is required",
)

# Rules between fields, and contents of texts: the operation, and the beginning of the message.
OF_CONTENTS = {
    ("list_audit_records", "end: must be"),
    ("export_audit_chunk", "end: must be"),
    # The patterns of hosts and URLs are wider than the hosts and URLs.
    ("create_auth_connection", "domain: must"),
    ("create_credential", "domain: must"),
    ("create_auth_connection", "allowed_domains."),
    ("update_auth_connection", "allowed_domains."),
    ("create_auth_connection", "login_url: must"),
    ("update_auth_connection", "login_url: must"),
    ("create_telemetry_destination", "endpoint: m"),
    ("update_telemetry_destination", "endpoint: m"),
    ("update_credential_provider", "server_url: m"),
    ("check_proxy", "url: "),
    ("curl", "url: must be"),
    ("create_deployment", "source.url: m"),
    ("get_connect_version", "viewport: must have at most"),
    # A part of the path has too many bytes.
    ("create_deployment", "entrypoint_rel_path: a part"),
    ("create_deployment", "source.entrypoint: a part"),
    # The last character has bits that belong to no byte.
    ("write_process_stdin", "data_b64: must be base64"),
    ("create_credential", "totp_secret: the URI"),
    ("update_credential", "totp_secret: the URI"),
    ("create_credential", "totp_secret: is required beside"),
    ("update_credential", "totp_secret: is required beside"),
    ("rotate_api_key", "days_to_expire: the key of the request expires earlier"),
    ("create_api_key", "expires_at: must be"),
    ("update_credential_provider", "vault: is not for this provider_type"),
    ("update_credential_provider", "server_url: is not for this provider_type"),
    ("create_credential_provider", "server_url: "),
    ("update_project_limits", "max_"),
    # Text of a query that holds JSON.
    ("get_connect_version", "launch: must be JSON"),
    ("stream_logs", "path: is required"),
    ("list_deployments", "app_name: is required with app_version"),
    ("create_credential_provider", "vault: "),
    ("create_proxy", "config."),
    # The pattern of an IPv6 address is wider than the addresses.
    ("create_proxy", "bypass_hosts."),
    # The schema of a pool serves create and update.
    ("create_pool", "expected_network: is only for updates"),
    # The operator sets the hosts.
    ("create_deployment", "region: must be one of"),
    ("update_browser", "network.private_hosts: can be set only"),
    ("update_browser", "network.proxy_routes: can be set only"),
    # Reserved names, in any case.
    ("create_telemetry_destination", "headers."),
    ("update_telemetry_destination", "headers."),
    ("create_deployment", "file: not a readable ZIP archive"),
    ("upload_extension", "file: not a readable ZIP archive"),
    # The bound is the limit that the operator sets.
    ("update_organization_limits", "default_project_max_concurrent_sessions: must be from"),
    # The schema says that the text is JSON; generators do not follow that.
    ("create_invocation", "payload: must be JSON text"),
    ("update_invocation", "output: must be JSON text"),
}


# Parts of messages about the meaning of a text.
OF_MEANINGS = ("has bits beyond its length", "is longer than the system takes")


def reasons(body):
    """Yields the code and the message of each refused field."""
    # WebDriver clients get it within their own error.
    body = body["value"]["data"] if "code" not in body else body
    details = body.get("details") or [body]
    for detail in details:
        yield detail["code"], detail["message"]


def is_expected(operation, body):
    """Returns whether every refusal is one that a schema cannot express."""
    def expected(code, message):
        return code in OF_THE_SERVER or message.startswith(OF_ALL_OPERATIONS) \
            or any(text in message for text in OF_MEANINGS) or any(
            operation == name and message.startswith(beginning) for name, beginning in OF_CONTENTS
        )

    return all(expected(code, message) for code, message in reasons(body))


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """Archives a small directory: that of all files takes minutes, and shows nothing else."""
    if case.operation.definition.raw["operationId"] == "download_dir_zip" and (case.query or {}).get("path") == "/":
        case.query["path"] = "/etc/ssl"


@schemathesis.check
def valid_request_acceptance(ctx, response, case):
    """A request that follows its schema is not refused as invalid."""
    operation = case.operation.definition.raw["operationId"]
    if response.status_code == 410 and case.operation.definition.raw.get("deprecated"):
        return None
    if response.status_code == 400 and is_expected(operation, response.json()):
        return None
    return positive_data_acceptance(ctx, response, case)
