"""telemetry.py PAGES_URL NETWORK: the public Python client, unmodified, on everything that telemetry has a name for.

The client checks each event against its own types (`_strict_response_validation`).
"""
import io
import json
import os
import sys
import threading
import time
import zipfile

import kernel
import websocket
from kernel import Kernel

pages = sys.argv[1]
where = {"base_url": os.environ["CASEMENT_URL"], "api_key": os.environ["CASEMENT_KEY"]}
client = Kernel(**where, max_retries=0, timeout=300)
strict = Kernel(**where, max_retries=0, timeout=300, _strict_response_validation=True)
CATEGORIES = ["console", "page", "interaction", "network", "control", "connection", "system", "screenshot", "captcha"]
PATIENCE = 120
saw = {}


class Cdp:
    def __init__(self, url):
        self.socket = websocket.create_connection(url, timeout=120, suppress_origin=True)
        self.next = 0
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")["targetId"]
        self.page = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, None)["sessionId"]

    def call(self, method, params=None, page=None):
        self.tell(method, params, page)
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.next:
                return message.get("result") or {}

    def tell(self, method, params=None, page=None):
        self.next += 1
        self.socket.send(json.dumps({"id": self.next, "method": method, "params": params or {}, **({"sessionId": page} if page else {})}))

    def open(self, path):
        self.call("Page.navigate", {"url": pages + path}, self.page)

    def evaluate(self, expression):
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        # An evaluation during a navigation has no response.
        return self.call("Runtime.evaluate", asked, self.page).get("result", {}).get("value")

    def click(self, id):
        x, y = self.evaluate(f"(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector('#{id}').getBoundingClientRect())")
        for kind in ["mousePressed", "mouseReleased"]:
            self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}, self.page)


created = strict.browsers.create(
    headless=True, timeout_seconds=600, telemetry={"enabled": True, "browser": {name: {"enabled": True} for name in CATEGORIES}},
    extra_body={"network": json.loads(sys.argv[2])})
id = created.session_id
assert all(getattr(created.telemetry.browser, name).enabled for name in CATEGORIES)

streamed = []


def listen():
    """Reads until the session ends: a restarted browser does not end the stream."""
    with strict.browsers.telemetry.stream(id, replay="all") as stream:
        streamed.extend(stream)


listener = threading.Thread(target=listen, daemon=True)
listener.start()
started = time.time()


def heard(kind, wanted=lambda data: True):
    """Waits until the stream has the event."""
    deadline = time.time() + PATIENCE
    while time.time() < deadline:
        for told in list(streamed):
            if told.event.type == kind and wanted(getattr(told.event, "data", None)):
                return told.event
        time.sleep(0.05)
    sys.exit(f"never told: {kind}; only {sorted({told.event.type for told in streamed})}")


cdp = Cdp(created.cdp_ws_url)
cdp.open("/telemetry/")
heard("page_load", lambda data: data.url == pages + "/telemetry/")
# A shift before the first drawing is no layout shift, and on a busy machine the automatic shift may be one.
grow = "document.querySelector('#late').style.height = '200px'"
cdp.evaluate(f"new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done({grow}))))")
for kind in [
    "page_navigation", "page_dom_content_loaded", "page_load", "page_layout_shift", "page_lcp", "page_layout_settled",
    "page_navigation_settled", "network_idle", "monitor_screenshot",
]:
    heard(kind)
hello = heard("console_log", lambda data: data.text == "hello").data
saw["console_log"] = [hello.level, hello.args, hello.target_type, hello.url == pages + "/telemetry/", hello.stack_trace.call_frames[0].url == hello.url]
failed = heard("console_error", lambda data: data.text == "it failed").data
saw["console_error"] = [failed.level, len(failed.args), heard("console_error", lambda data: data.line is not None).source.event]
posted = heard("network_request", lambda data: data.method == "POST").data
saw["network_request"] = [posted.post_data, posted.initiator_type, posted.resource_type, posted.is_redirect]
answered = heard("network_response", lambda data: data.request_id == posted.request_id).data
saw["network_response"] = [answered.status, answered.mime_type, len(answered.body)]
saw["network_loading_failed"] = heard("network_loading_failed").data.error_text

cdp.click("button")
saw["interaction_click"] = heard("interaction_click").data.selector.split(" ")[0]
for field, key in [("word", "S"), ("plain", "a")]:
    cdp.evaluate(f"document.querySelector('#{field}').focus()")
    for kind in ["keyDown", "keyUp"]:
        cdp.call("Input.dispatchKeyEvent", {"type": kind, "key": key, "text": key}, cdp.page)
pressed = heard("interaction_key").data
saw["interaction_key"] = [pressed.key, pressed.selector, pressed.tag]
cdp.call("Input.dispatchMouseEvent", {"type": "mouseWheel", "x": 100, "y": 100, "deltaX": 0, "deltaY": 400}, cdp.page)
scrolled = heard("interaction_scroll_settled").data
saw["interaction_scroll_settled"] = [scrolled.target_selector, scrolled.to_y > scrolled.from_y]
cdp.evaluate("scrollTo(0, 0)")
cdp.click("popup")
saw["page_tab_opened"] = heard("page_tab_opened").data.target_type

cdp.open("/telemetry/guarded")
heard("page_navigation", lambda data: data.url == pages + "/telemetry/guarded")
heard("page_navigation", lambda data: "geetest" in (data.url or ""))
cdp.evaluate("document.querySelector('input').value = 'proof'")
solved = heard("captcha_solve_result").data
saw["captcha_solve_result"] = [solved.captcha_type, solved.status, solved.website_path]

assert client.browsers.computer.capture_screenshot(id).read().startswith(b"\x89PNG")
called = heard("api_call", lambda data: "screenshot" in data.operation_id.lower()).data
saw["api_call"] = [called.status, called.duration_ms >= 0, bool(called.request_id)]
heard("cdp_connect")
live = created.browser_live_view_url.replace("http", "ws", 1)
at = live.index("?") if "?" in live else len(live)
viewer = websocket.create_connection(live[:at].rstrip("/") + "/socket" + live[at:], timeout=120, origin=where["base_url"])
looked = heard("live_view_connect").data.session_id
viewer.close()
saw["live_view_disconnect"] = heard("live_view_disconnect").data.session_id == looked

# Older clients do not know page_crashed, which has a test of its own with the agent.
client.browsers.update(id, telemetry={"browser": {"page": {"enabled": False}}})
cdp.tell("Page.navigate", {"url": "chrome://crash"}, cdp.page)
crashed = heard("service_crashed").data
saw["service_crashed"] = [crashed.service_name, crashed.phase]
out = io.BytesIO()
with zipfile.ZipFile(out, "w") as archive:
    archive.writestr("manifest.json", json.dumps({"manifest_version": 3, "name": "none", "version": "1"}))
client.browsers.load_extensions(id, extensions=[{"name": "none", "zip_file": out.getvalue()}])
saw["monitor_disconnected"] = heard("monitor_disconnected").data.reason
saw["monitor_reconnected"] = heard("monitor_reconnected").data.reconnect_duration_ms >= 0
closed = heard("cdp_disconnect").data
saw["cdp_disconnect"] = [closed.reason, closed.message_count > 10, closed.duration_ms > 0]

# The same events page by page: each once, in order.
until_now = list(streamed)
last = until_now[-1].seq
read = list(strict.browsers.telemetry.events(id, limit=100, since="2020-01-01T00:00:00Z"))
numbers = [told.seq for told in read]
assert numbers == list(range(1, len(numbers) + 1)), numbers
assert numbers[-1] >= last
told = {one.seq: one.event.to_json() for one in until_now}
assert all(told[one.seq] == one.event.to_json() for one in read if one.seq in told), "the stream tells what the pages tell"
assert [one.seq for one in until_now] == numbers[:len(until_now)], "the stream leaves nothing out"
saw["kinds"] = sorted({one.event.type for one in read})
assert all(started - 60 < one.event.ts / 1e6 < time.time() + 60 for one in read)
only = client.browsers.telemetry.events(id, category=["captcha"], since="2020-01-01T00:00:00Z")
saw["of one category"] = sorted({one.event.category for one in only})

# Off: no more events of the page.
client.browsers.update(id, telemetry={"browser": {"console": {"enabled": False}}})
# Earlier lines may arrive later: the restored pages have logged, too.
off = time.time()
cdp = Cdp(client.browsers.retrieve(id).cdp_ws_url)
cdp.open("/telemetry/popup")
heard("page_load", lambda data: data.url == pages + "/telemetry/popup")
saw["console is off"] = not any(one.event.type == "console_log" and one.event.ts / 1e6 > off for one in streamed)
client.browsers.delete_by_id(id)
listener.join(PATIENCE)
saw["the stream ends with its session"] = not listener.is_alive()
print(json.dumps(saw))
