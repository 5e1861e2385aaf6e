"""Credential providers with the unmodified public client. Prints the results."""

import json
import os
import sys

import kernel

URL, KEY = os.environ["CASEMENT_URL"], os.environ["CASEMENT_KEY"]
SERVER, TOKEN = sys.argv[1:]
client = kernel.Kernel(base_url=URL, api_key=KEY, max_retries=0, _strict_response_validation=True)
called = set()


def call(method, /, *args, **kwargs):
    called.add(method)
    return getattr(client.credential_providers, method)(*args, **kwargs)


def refused(action):
    try:
        action()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"]]
    return "not refused"


def make(name, **more):
    extra = {"server_url": SERVER, **more.pop("extra_body", {})}
    return call("create", name=name, provider_type="onepassword", token=TOKEN, extra_body=extra, **more)


made = make("Team", cache_ttl_seconds=60)
second = make("Second")
tested = call("test", made.id)
items = call("list_items", made.id).items
changed = call("update", second.id, enabled=False, priority=0, name="Renamed", cache_ttl_seconds=0)
broken = call("update", second.id, token="s3cr3t-but-wrong")
test = call("test", second.id)
saw = {
    "made": [made.provider_type, made.name, made.enabled, made.priority, second.priority],
    "tested": [tested.success, [vault.name for vault in tested.vaults], tested.error],
    "items": [[item.path, item.urls] for item in items],
    "changed": [changed.name, changed.enabled, changed.priority, changed.updated_at > changed.created_at],
    "listed": [one.name for one in call("list", limit=1)],
    "searched": [one.name for one in call("list", query="ENAM")],
    "read": call("retrieve", made.id).to_dict().keys() >= {"id", "name", "priority"},
    "refused token": [test.success, test.vaults, test.error],
    "items of it": refused(lambda: call("list_items", second.id)),
    "taken": refused(lambda: make("TEAM")),
}
call("delete", second.id)
saw["gone"] = refused(lambda: call("retrieve", second.id))
saw["called"] = f"{len(called)} of 7"
print(json.dumps(saw))
