"""Profiles with the unmodified public client. Prints the results."""

import inspect
import json
import os

import kernel

URL, KEY = os.environ["CASEMENT_URL"], os.environ["CASEMENT_KEY"]
client = kernel.Kernel(base_url=URL, api_key=KEY, max_retries=0, timeout=300, _strict_response_validation=True)
METHODS = {name for name, _ in inspect.getmembers(client.profiles, inspect.ismethod) if not name.startswith("_")}
called = set()


def call(method, /, *args, **kwargs):
    called.add(method)
    return getattr(client.profiles, method)(*args, **kwargs)


def refused(action):
    try:
        action()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"]]
    return "not refused"


NAME = "calls-of-python"
made = call("create", name=NAME)
nameless = call("create")
session = client.browsers.create(headless=True, profile={"id": made.id, "save_changes": True})
loaded = session.profile.name
client.browsers.delete_by_id(session.session_id)
saved = call("retrieve", NAME)
download = call("download", NAME)
pool = client.browser_pools.create(name=NAME, size=1, headless=True, profile={"name": NAME})
config = pool.browser_pool_config
in_use = refused(lambda: call("delete", NAME))
client.browser_pools.update(NAME, profile={"id": ""})
client.browser_pools.delete(NAME, force=True)
renamed = call("update", NAME, name=NAME + "-b")
saw = {
    "nameless": nameless.name,
    "loaded": loaded,
    "saved": [saved.updated_at > made.updated_at, saved.last_used_at is not None],
    "download": download.read()[:4].hex(),
    "pool": [pool.profile_id == made.id, config.refresh_on_profile_update, config.profile.id == made.id],
    "in use": in_use,
    "renamed": renamed.name,
    "listed": [one.name for one in call("list", query="OF-PYTHON", limit=1)],
    "exact": [one.name for one in call("list", name="CÀLLS-of-Python-B")],
    "taken": refused(lambda: call("create", name=(NAME + "-b").upper())),
}
call("delete", renamed.id)
call("delete", nameless.id)
saw["gone"] = refused(lambda: call("retrieve", renamed.id))
saw["called"] = f"{len(called)} of {len(METHODS)}"
print(json.dumps(saw))
