"""Validates the OpenAPI document of a server, and tries the server against it with a fuzzer.

The argument is the folder of the hooks. CASEMENT_FUZZER_SEED selects other requests than the usual ones, and
CASEMENT_FUZZER_CHECKS other checks.
"""

import json
import os
import pathlib
import subprocess
import sys
import urllib.request

import openapi_spec_validator

URL = os.environ["CASEMENT_URL"]

LEFT_OUT = [
    # These ask servers that are not there: the Web Store and credential providers.
    "extension_from_web_store",
    "list_credential_provider_items",
    "test_credential_provider",
    # These want a WebSocket.
    "connect_browser",
    "connect_webdriver",
]

# An event stream is read until the timeout of its request.
STREAM_SECONDS = 10

CHECKS = os.environ.get("CASEMENT_FUZZER_CHECKS", ",".join([
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "valid_request_acceptance", "unsupported_method",
]))


def is_stream(operation):
    return any("text/event-stream" in answer.get("content", {}) for answer in operation["responses"].values())


def configuration(document):
    """Returns the configuration of the fuzzer: the timeouts of event streams."""
    operations = [operation for path in document["paths"].values() for operation in path.values()
                  if isinstance(operation, dict) and "operationId" in operation]
    return "".join(
        f'[[operations]]\ninclude-operation-id = "{operation["operationId"]}"\nrequest-timeout = {STREAM_SECONDS}\n'
        for operation in operations if is_stream(operation)
    )


def fuzz(phase, examples, hooks):
    command = [
        pathlib.Path(sys.executable).parent / "schemathesis", "run", "openapi.json", "--url", URL,
        "--header", f"Authorization: Bearer {os.environ['CASEMENT_KEY']}",
        "--phases", phase, "--max-examples", str(examples), "--checks", CHECKS,
        "--seed", os.environ.get("CASEMENT_FUZZER_SEED", "1"),
        "--continue-on-failure", "--no-shrink", "--request-timeout", "60", "--suppress-health-check", "all",
        "--warnings", "off",
    ]
    for operation in LEFT_OUT:
        command += ["--exclude-operation-id", operation]
    # The order of the operations follows the hashes of texts.
    environment = {**os.environ, "PYTHONPATH": hooks, "PYTHONHASHSEED": "0", "SCHEMATHESIS_HOOKS": "hooks"}
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode != 0:
        print(run.stdout)
        sys.exit(f"the phase {phase} failed")


with urllib.request.urlopen(f"{URL}/openapi.json") as response:
    document = json.load(response)
openapi_spec_validator.validate(document)
pathlib.Path("openapi.json").write_text(json.dumps(document))
pathlib.Path("schemathesis.toml").write_text(configuration(document))
fuzz("coverage", 100, sys.argv[1])
