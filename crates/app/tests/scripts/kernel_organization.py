"""The calls of an organization's administrator, with the unmodified public client. Prints the results."""

import datetime
import gzip
import inspect
import io
import json
import os

import httpx
import kernel

URL, KEY = os.environ["CASEMENT_URL"], os.environ["CASEMENT_KEY"]
client = kernel.Kernel(base_url=URL, api_key=KEY, max_retries=0, timeout=300)
saw = {}
called = set()


def call(method, /, *args, **kwargs):
    """Calls a method of the client by its name, and records it."""
    target = client
    for part in method.split("."):
        target = getattr(target, part)
    called.add(method)
    return target(*args, **kwargs)


def refused(action):
    try:
        action()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"]]
    return "not refused"


def projects():
    made = call("projects.create", name="Alpha")
    taken = refused(lambda: call("projects.create", name="ALPHA"))
    listed = [project.name for project in call("projects.list", query="alph")]
    archived = call("projects.update", made.id, status="archived").status
    in_it = client.with_options(default_headers={"X-Kernel-Project-Id": made.id})
    write = refused(lambda: in_it.browser_pools.create(size=1))
    call("projects.update", made.id, status="active", name="Beta")
    limits = call("projects.limits.update", made.id, max_concurrent_sessions=1, max_pooled_sessions=0)
    kept = call("projects.limits.retrieve", made.id)
    pool = refused(lambda: in_it.browser_pools.create(size=2))
    held = in_it.browser_pools.create(size=1, headless=True)
    busy = refused(lambda: call("projects.delete", made.id))
    in_it.browser_pools.delete(held.id, force=True)
    call("projects.delete", made.id)
    gone = refused(lambda: call("projects.retrieve", made.id))
    return {
        "taken": taken, "listed": listed, "archived": archived, "write": write,
        "limits": [limits.max_concurrent_sessions, kept.max_pooled_sessions], "limit": pool,
        "busy": busy, "gone": gone,
    }


def organization():
    before = call("organization.limits.retrieve")
    set_to = call("organization.limits.update", default_project_max_concurrent_sessions=40)
    call("organization.limits.update", default_project_max_concurrent_sessions=None)
    return [before.max_concurrent_sessions, set_to.default_project_max_concurrent_sessions]


def api_keys():
    project = client.projects.create(name="keyed")
    made = call("api_keys.create", name="robot", days_to_expire=10, project_id=project.id)
    robot = kernel.Kernel(base_url=URL, api_key=made.key, max_retries=0)
    reads = robot.projects.retrieve(project.id).name
    other = refused(lambda: robot.projects.list())
    renamed = call("api_keys.update", made.id, name="Röbot").name
    listed = [(key.name, key.project_name) for key in call("api_keys.list", name="ROBOT", sort_by="name")]
    new = call("api_keys.rotate", made.id, expire_in_days=0)
    old = refused(lambda: robot.projects.retrieve(project.id))
    fresh = kernel.Kernel(base_url=URL, api_key=new.key, max_retries=0).projects.retrieve(project.id).name
    me = [key for key in client.api_keys.list() if KEY.startswith("csk_" + key.id)][0]
    itself = refused(lambda: call("api_keys.delete", me.id))
    call("api_keys.delete", made.id)
    gone = refused(lambda: call("api_keys.retrieve", made.id))
    kept = client.api_keys.retrieve(made.id, include_deleted=True).deleted_at is not None
    client.projects.delete(project.id)
    with_project = refused(lambda: kernel.Kernel(base_url=URL, api_key=new.key, max_retries=0).browsers.list())
    return {
        "reads": reads, "other": other, "renamed": renamed, "listed": listed, "old": old, "fresh": fresh,
        "masked": new.masked_key == f"csk_{new.id}_****{new.key[-4:]}", "itself": itself, "gone": gone, "kept": kept,
        "maker": bool(new.created_by.id), "with its project": with_project,
    }


def audit_logs():
    start = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
    end = start + datetime.timedelta(hours=2)
    project = client.projects.create(name="audited")
    client.projects.delete(project.id)
    mine = dict(start=start, end=end, search=project.id)
    listed = [(entry.method, entry.route, entry.status, entry.auth_strategy)
              for entry in call("audit_logs.list", **mine, limit=1)]
    whole, cursor = b"", None
    while True:
        extra = {"cursor": cursor} if cursor else {}
        chunk = client.audit_logs.with_raw_response.export_chunk(
            start=start, end=end, exclude_method=["GET", "PATCH"], limit=2, **extra)
        called.add("audit_logs.export_chunk")
        whole += chunk.read()
        cursor = chunk.headers.get("x-next-cursor")
        if cursor is None:
            break
    lines = [json.loads(line) for line in gzip.decompress(whole).splitlines()]
    ids = [line["id"] for line in lines]
    times = [line["timestamp"] for line in lines]
    return {
        "listed": listed,
        "complete": len(ids) == len(set(ids)) and len(ids) >= 4,
        "ordered": times == sorted(times, reverse=True),
        "methods": sorted({line["method"] for line in lines}),
        "secrets": KEY.encode() in gzip.decompress(whole),
        "stale": refused(lambda: client.audit_logs.export_chunk(start=start, end=end, cursor="AAAA")),
    }


def downloaded():
    """The newest client puts the chunks of an export together itself, and checks the length and hash of each."""
    if not hasattr(client.audit_logs, "download"):
        return None
    start = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
    file, chunks = io.BytesIO(), []
    done = call("audit_logs.download", to=file, start=start, end=start + datetime.timedelta(hours=2), method="POST",
                limit=2, on_progress=lambda progress: chunks.append(progress.chunk_rows), max_transfer_retries=0)
    lines = gzip.decompress(file.getvalue()).splitlines()
    return [done.rows == len(lines) >= 3, done.bytes_written == len(file.getvalue()), done.chunks == len(chunks) >= 2]


def named():
    """The newest client selects a project by its name, which it can send in ASCII alone."""
    if "project" not in inspect.signature(kernel.Kernel).parameters:
        return None
    made = client.projects.create(name="exercise")
    try:
        by = lambda **project: kernel.Kernel(base_url=URL, api_key=KEY, max_retries=0, **project)
        by(project="exercise").credentials.create(name="there", domain="a.example", values={"a": "b"})
        in_it = [credential.name for credential in by(project_id=made.id).credentials.list()]
        by(project=made.id).credentials.delete("there")
        default = client.projects.retrieve("default").id
        return [
            in_it,
            refused(lambda: by(project="nowhere").credentials.list()),
            refused(lambda: by(project="exercise", project_id=default).credentials.list()),
        ]
    finally:
        client.projects.delete(made.id)


def policies():
    project = client.projects.create(name="scoped")
    in_it = {"X-Kernel-Project-Id": project.id}
    policy = {"statements": [{"action": "*:read", "resource": f"projects/{project.id}/*"}]}
    soon = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)).isoformat()
    made = client.api_keys.create(name="reader", extra_body={"policy": policy, "expires_at": soon})
    reader = kernel.Kernel(base_url=URL, api_key=made.key, max_retries=0, default_headers=in_it)
    elsewhere = kernel.Kernel(base_url=URL, api_key=made.key, max_retries=0)
    session = client.browsers.create(headless=True, extra_headers=in_it)
    seen = reader.browsers.retrieve(session.session_id)
    def driven(record):
        token = record.cdp_ws_url.split("jwt=")[1]
        answer = httpx.post(f"{record.base_url}/computer/screenshot", params={"jwt": token}, json={})
        return answer.status_code
    result = {
        "policy": made.to_dict()["policy"] == policy, "expires": made.expires_at is not None,
        "listed": [one.session_id == session.session_id for one in reader.browsers.list()],
        "driven": [driven(session), driven(seen)],
        "elsewhere": refused(lambda: elsewhere.browsers.list()),
        "creates": refused(lambda: reader.browsers.create()),
        "escalates": refused(lambda: reader.api_keys.create(name="more")),
    }
    client.browsers.delete_by_id(session.session_id, extra_headers=in_it)
    client.api_keys.delete(made.id)
    client.projects.delete(project.id)
    return result


saw["projects"] = projects()
saw["organization"] = organization()
saw["api_keys"] = api_keys()
saw["policies"] = policies()
saw["audit_logs"] = audit_logs()
saw["downloaded"] = downloaded()
saw["named"] = named()
saw["called"] = len(called)
print(json.dumps(saw))
