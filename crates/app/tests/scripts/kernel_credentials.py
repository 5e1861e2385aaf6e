"""Credentials with the unmodified public client. Prints the results."""

import datetime
import json
import os

import kernel

URL, KEY = os.environ["CASEMENT_URL"], os.environ["CASEMENT_KEY"]
client = kernel.Kernel(base_url=URL, api_key=KEY, max_retries=0, _strict_response_validation=True)
called = set()


def call(method, /, *args, **kwargs):
    called.add(method)
    return getattr(client.credentials, method)(*args, **kwargs)


def refused(action):
    try:
        action()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"]]
    return "not refused"


def now():
    return datetime.datetime.now(datetime.timezone.utc)


made = call(
    "create", name="Shop", domain="shop.example", sso_provider="google",
    values={"username": "me", "password": "hunter2-at-the-shop"}, totp_secret="GEZD GNBV GY3T QOJQ",
)
before = now()
code = call("totp_code", "shop")
after = now()
changed = call("update", made.id, values={"pin": "1234"}, remove_value_keys=["username"], sso_provider=None, totp_secret="")
listed = [one.to_dict() for one in call("list", domain="shop.example", query="sho")]
saw = {
    "made": [made.value_keys, made.has_values, made.has_totp_secret, made.sso_provider, len(made.totp_code)],
    "code": [len(code.code), before < code.expires_at <= after + datetime.timedelta(seconds=30)],
    "changed": [changed.value_keys, changed.has_totp_secret, changed.sso_provider, changed.totp_code],
    "read": call("retrieve", made.id).name,
    "listed": [[one["name"], one["has_values"], "value_keys" in one] for one in listed],
    "taken": refused(lambda: call("create", name="SHOP", domain="a.example", values={})),
    "no secret": refused(lambda: call("totp_code", "shop")),
}
call("delete", "shop")
saw["gone"] = refused(lambda: call("retrieve", made.id))
saw["called"] = f"{len(called)} of 6"
call("create", name="kept", domain="kept.example", values={"password": "hunter2-to-be-kept"}, totp_secret="GEZDGNBVGY3TQOJQ")
print(json.dumps(saw))
