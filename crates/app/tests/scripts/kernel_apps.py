"""kernel_apps.py FRAMEWORK: every method of `deployments`, `apps` and `invocations` of the public client, unmodified, against one
program. FRAMEWORK is a file with the required part of the client's framework."""

import io
import json
import os
import sys
import zipfile

import kernel

PROGRAM = '''
import os
import time
import kernel

client = kernel.Kernel()
app = kernel.App("shop")


@app.action("echo")
def echo(context, payload):
    print("echoing", payload)
    return {"payload": payload, "greeting": os.environ["GREETING"], "invocation": context.invocation_id}


@app.action("browse")
def browse(context):
    browser = client.browsers.create(headless=True, invocation_id=context.invocation_id)
    print("browser", browser.session_id, flush=True)
    while True:
        time.sleep(0.1)


@app.action("fail")
def fail(context):
    raise ValueError("not today")
'''

# A program of the same app, without packages to install.
SMALL = '''
import kernel

app = kernel.App("shop")


@app.action("echo")
def echo(context, payload):
    return payload
'''

WHOLE = {"main.py": PROGRAM, "requirements.txt": "kernel==0.80.0\n"}
WITHOUT_PACKAGES = {"main.py": SMALL, "kernel.py": open(sys.argv[1]).read()}

client = kernel.Kernel(api_key=os.environ["CASEMENT_KEY"], base_url=os.environ["CASEMENT_URL"], max_retries=0, timeout=300)
saw = {}


def archive(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def deploy(files, **more):
    made = client.deployments.create(
        file=archive(files), entrypoint_rel_path="main.py", version="1.0", env_vars={"GREETING": "hi"}, **more
    )
    told = []
    # A stream that is left early must be closed: otherwise the garbage collector may close it while the client holds a lock, and block forever.
    with client.deployments.follow(made.id) as events:
        for event in events:
            if event.event in ("log", "sse_heartbeat"):
                continue
            told.append(event.deployment.status if event.event == "deployment_state" else event.event)
            if told[-1] in ("running", "failed", "stopped"):
                break
    return made, told


made, told = deploy(WHOLE)
saw["deployed"] = [made.status, made.env_vars, told[-2:]]
saw["deployment"] = client.deployments.retrieve(made.id).status
saw["listed"] = [one.id == made.id for one in client.deployments.list(app_name="shop", app_version="1.0")]
saw["apps"] = [[one.app_name, one.version, [action.name for action in one.actions]] for one in client.apps.list()]

done = client.invocations.create(app_name="shop", action_name="echo", version="1.0", payload='{"n": 1}')
output = json.loads(done.output)
saw["echo"] = [done.status, output["payload"], output["greeting"], output["invocation"] == done.id]
failed = client.invocations.create(app_name="shop", action_name="fail", version="1.0")
saw["fail"] = [failed.status, failed.status_reason]
events = list(client.invocations.follow(done.id))
saw["followed"] = [events[0].event, [event.message for event in events if event.event == "log"]]

# `async` is a keyword, so the client's name for it ends with an underscore.
running = client.invocations.create(
    app_name="shop", action_name="browse", version="1.0", async_=True, async_timeout_seconds=900
)
saw["async"] = running.status
stream = client.invocations.follow(running.id)
for event in stream:
    if event.event == "log" and event.message.startswith("browser "):
        break
    assert event.event != "invocation_state" or event.invocation.status in ("queued", "running"), event
browsers = client.invocations.list_browsers(running.id).browsers
saw["browsers"] = [len(browsers), event.message == f"browser {browsers[0].session_id}"]
client.invocations.delete_browsers(running.id)
saw["browsers deleted"] = len(client.invocations.list_browsers(running.id).browsers)
canceled = client.invocations.update(running.id, status="failed", output='"enough"')
saw["canceled"] = [canceled.status, canceled.status_reason, canceled.output]
states = [event.invocation.status for event in stream if event.event == "invocation_state"]
saw["the end of the stream"] = states[-1:]
try:
    client.invocations.update(running.id, status="succeeded")
except kernel.ConflictError as error:
    saw["too late"] = error.body["code"]
saw["invocations"] = [one.action_name for one in client.invocations.list(status="failed")]
saw["retrieved"] = client.invocations.retrieve(done.id).payload

again, told = deploy(WITHOUT_PACKAGES)
saw["same version"] = [told[-1], client.deployments.retrieve(again.id).status_reason]
forced, told = deploy(WITHOUT_PACKAGES, force=True)
saw["forced"] = [told[-1], client.deployments.retrieve(made.id).status]

client.deployments.delete(forced.id)
saw["stopped"] = [
    [event.deployment.status, event.deployment.status_reason]
    for event in client.deployments.follow(forced.id)
    if event.event == "deployment_state"
]
try:
    client.invocations.create(app_name="shop", action_name="echo", version="1.0", payload="1")
except kernel.ConflictError as error:
    saw["not running"] = error.body["code"]
print(json.dumps(saw))
