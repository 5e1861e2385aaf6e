"""Auth connections with the public client as it is: a login at a site, followed as it goes. Prints what it saw."""

import asyncio
import inspect
import json
import os
import sys

import kernel

URL, KEY, SITE = os.environ["CASEMENT_URL"], os.environ["CASEMENT_KEY"], sys.argv[1]
client = kernel.Kernel(base_url=URL, api_key=KEY, max_retries=0, timeout=300, _strict_response_validation=True)
connections = client.auth.connections
METHODS = {
    name
    for name, _ in inspect.getmembers(connections, inspect.ismethod)
    if not name.startswith("_") and not name.startswith("with_")
}
# The profile of an earlier run with another version is logged in already.
NAME = f"shop-python-{kernel.__version__}"
called = set()


def call(method, /, *args, **kwargs):
    called.add(method)
    return getattr(connections, method)(*args, **kwargs)


def refused(action):
    try:
        action()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"]]
    return "not refused"


def follow(id):
    """Submits the requested values, at first wrong ones."""
    asked, said, both, passwords = [], [], None, ["hunter3-so-wrong", "hunter2-so-secret"]
    reasons, stale, earlier = [], None, None
    with call("follow", id) as events:
        for event in events:
            if event.event != "managed_auth_state":
                continue
            if event.flow_status != "IN_PROGRESS":
                return {"ends": event.flow_status, "asked": asked, "said": said, "both": both, "stale": stale, "reasons": reasons}
            if event.website_error and event.website_error not in said:
                said.append(event.website_error)
            if event.flow_step == "AWAITING_INPUT" and passwords:
                asked = [field.type for field in event.fields]
                reasons += [getattr(field, "reason", None) for field in event.fields]
                both = refused(lambda: call("submit", id, fields={"a": "b"}, field_values={"a": "b"}))
                values = {"identifier": "ann", "password": passwords.pop(0)}
                given = {field.id: values[field.type] for field in event.fields}
                if earlier:
                    stale = refused(lambda: call("submit", id, field_values=given, extra_body={"interaction_id": earlier}))
                earlier = event.interaction_id
                call("submit", id, field_values=given, extra_body={"interaction_id": earlier})
    return "the stream ended"


wish = dict(domain="localhost", profile_name=NAME, login_url=SITE)
made = call("create", **wish, allowed_domains=["id.shop.example"], health_check_interval=600)
changed = call("update", made.id, auto_reauth=False, health_check_interval=900)
login = call("login", made.id)
saw = {
    "made": [made.status, made.flow_status, made.allowed_domains, made.health_check_interval],
    "again": refused(lambda: call("create", **wish)),
    "bad": refused(lambda: call("update", made.id, login_url="https://elsewhere.example/")),
    "changed": [changed.auto_reauth, changed.health_check_interval, changed.allowed_domains],
    "listed": [
        len(list(call("list", profile_name=NAME))),
        len(list(call("list", query="p-pyth", domain="localhost"))),
        len(list(call("list", profile_name=NAME, domain="elsewhere.example"))),
    ],
    "begun": [login.flow_type, login.handoff_code in login.hosted_url, f"/login/{made.id}?code=" in login.hosted_url],
}
stream = follow(made.id)
done = call("retrieve", made.id)
saw |= {
    "stream": stream,
    "done": [done.status, done.flow_status, done.flow_step],
    "kept": done.credential is not None and done.credential.name is not None,
    "timeline": [[event.type, event.status] for event in call("timeline", made.id)],
    "in use": refused(lambda: client.profiles.delete(NAME)),
    "late": refused(lambda: call("submit", made.id, fields={"username": "ann"})),
}
call("delete", made.id)
saw["gone"] = refused(lambda: call("retrieve", made.id))


async def once_more():
    async with kernel.AsyncKernel(base_url=URL, api_key=KEY, max_retries=0, _strict_response_validation=True) as client:
        made = await client.auth.connections.create(**wish)
        await client.auth.connections.delete(made.id)
        return made.status


saw["async"] = asyncio.run(once_more())
saw["called"] = f"{len(called & METHODS)} of {len(METHODS)}"
print(json.dumps(saw))
