"""extensions.py PAGES_URL HEADLESS: the public Python client, unmodified, on every call of extensions."""
import asyncio
import hashlib
import io
import json
import os
import sys
import time
import zipfile

import kernel
import websocket
from kernel import AsyncKernel, Kernel

pages, headless = sys.argv[1], sys.argv[2] == "true"
client = Kernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"], max_retries=0, timeout=300)
mark = "headless" if headless else "headful"
saw = {}


def refused(call):
    try:
        call()
    except kernel.APIStatusError as error:
        details = error.body.get("details") or []
        return [type(error).__name__, error.body["code"], *[d["message"].split(": ")[0] + " " + d["code"] for d in details]]
    return "not refused"


def zipped(files, top=""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files:
            archive.writestr(top + name, text)
    return out.getvalue()


def extension(word, top="", **more):
    manifest = {
        "manifest_version": 3, "name": word, "version": "1.0", "background": {"service_worker": "worker.js"},
        "content_scripts": [{"matches": ["http://*/*"], "js": ["content.js"]}], **more,
    }
    content = f"chrome.runtime.sendMessage('{word}', a => document.documentElement.setAttribute('data-{word}', a))"
    worker = "chrome.runtime.onMessage.addListener((word, _, answer) => answer('worker of ' + word))"
    return zipped([("manifest.json", json.dumps(manifest)), ("content.js", content), ("worker.js", worker)], top)


class Cdp:
    def __init__(self, session):
        self.socket = websocket.create_connection(session.cdp_ws_url, timeout=180, suppress_origin=True)
        self.next = 0

    def call(self, method, params=None, page=None):
        self.next += 1
        self.socket.send(json.dumps({"id": self.next, "method": method, "params": params or {}, **({"sessionId": page} if page else {})}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.next:
                return message.get("result", {})

    def open(self, url):
        target = self.call("Target.createTarget", {"url": url})["targetId"]
        return self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]

    def evaluate(self, page, expression):
        # An evaluation during a navigation has no response.
        return self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True}, page).get("result", {}).get("value")

    def until(self, page, expression, wanted):
        end = time.monotonic() + 180
        while (found := self.evaluate(page, expression)) != wanted:
            assert time.monotonic() < end, f"{expression}: {found}"
            time.sleep(0.05)

    def shows(self, *words):
        page = self.open(pages + "/form")
        for word in words:
            self.until(page, f"document.documentElement?.getAttribute('data-{word}')", f"worker of {word}")
        return page

    def closed(self):
        try:
            while True:
                code, data = self.socket.recv_data()
                if code == websocket.ABNF.OPCODE_CLOSE:
                    return [int.from_bytes(data[:2], "big"), data[2:].decode()]
        except websocket.WebSocketConnectionClosedException:
            return None


# Stored for the project.
red = extension("red")
name = f"red-{mark}"
kept = client.extensions.upload(file=red, name=name)
assert (kept.size_bytes, kept.name, kept.last_used_at) == (len(red), name, None), kept
assert kept.checksum == hashlib.sha256(red).hexdigest(), kept
assert client.extensions.download(name).read() == red
assert client.extensions.get(kept.id).checksum == kept.checksum
saw["taken"] = refused(lambda: client.extensions.upload(file=red, name=name.upper()))
folded = client.extensions.upload(file=extension("blue", "top/"), name=f"blue-{mark}")
assert [e.id for e in client.extensions.list(query=f"d-{mark}")] == [kept.id]
assert [e.id for e in client.extensions.list(name=name)] == [kept.id]
assert [e.id for e in client.extensions.list(limit=1)] != []
nameless = client.extensions.upload(file=extension("nameless"))
assert nameless.name is None
client.extensions.delete(nameless.id)
saw["deleted"] = [refused(lambda: client.extensions.get(nameless.id)), refused(lambda: client.extensions.download(nameless.id))]
saw["names"] = [refused(lambda: client.extensions.upload(file=red, name=bad)) for bad in ["from_chrome_store", "a b", kept.id]]
saw["no archive"] = refused(lambda: client.extensions.upload(file=b"text"))
saw["no manifest"] = refused(lambda: client.extensions.upload(file=zipped([("x", "y")])))
saw["too large"] = refused(lambda: client.extensions.upload(file=b"\0" * ((50 << 20) + 1)))

# In a session from its start.
saw["unknown"] = refused(lambda: client.browsers.create(headless=headless, extensions=[{"name": "nowhere"}, {"id": kept.id}, {}]))
session = client.browsers.create(headless=headless, timeout_seconds=600, extensions=[{"name": name}, {"id": folded.id}])
try:
    cdp = Cdp(session)
    cdp.shows("red", "blue")
    used = client.extensions.get(kept.id).last_used_at
    assert used is not None

    # And one more while it runs: open connections close with a reason, open pages come back.
    page = cdp.open(pages + "/form")
    cdp.until(page, "document.readyState + document.title", "completeA form")
    cdp.evaluate(page, "document.cookie = 'logged=in'; localStorage.kept = 'here'")
    green = extension("green")
    client.browsers.load_extensions(session.session_id, extensions=[{"name": "green", "zip_file": green}])
    saw["closed"] = cdp.closed()
    cdp = Cdp(session)
    page = cdp.shows("red", "blue", "green")
    saw["kept"] = cdp.evaluate(page, "document.cookie + ' ' + localStorage.kept")
    assert client.browsers.computer.capture_screenshot(session.session_id).read()[:4] == b"\x89PNG"
    # Restored pages load later.
    end = time.monotonic() + 180
    while [t["url"] for t in cdp.call("Target.getTargets")["targetInfos"] if t["type"] == "page"].count(pages + "/form") < 3:
        assert time.monotonic() < end, cdp.call("Target.getTargets")
        time.sleep(0.05)

    # Refusals change nothing.
    def load(*pairs):
        return refused(lambda: client.browsers.load_extensions(
            session.session_id, extensions=[{"name": n, "zip_file": z} for n, z in pairs]))

    saw["load"] = [
        load(), load(("a/b", green)), load(("a", b"text")), load(("a", green), ("a", green)),
        load(*[(f"e{n}", green) for n in range(21)]), load(("a", green), ("b", zipped([("manifest.json", "[]")]))),
    ]
    assert cdp.call("Browser.getVersion")["product"], "the connection is still open"
    # Errors that only Chromium detects.
    saw["chromium"] = load(("bad", extension("bad", version="one")))
    saw["closed again"] = cdp.closed()
    Cdp(session).shows("red", "blue", "green")

    async def loaded():
        async with AsyncKernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"]) as later:
            await later.browsers.load_extensions(
                session.session_id, extensions=[{"name": "one", "zip_file": extension("one")}, {"name": "two", "zip_file": extension("two")}])
            return [e.name async for e in await later.extensions.list(name=name)]

    assert asyncio.run(loaded()) == [name]
    Cdp(session).shows("one", "two", "green", "red", "blue")
finally:
    client.browsers.delete_by_id(session.session_id)

# In a pool.
pool = client.browser_pools.create(size=1, name=f"extended-{mark}", headless=headless, extensions=[{"id": folded.id}, {"id": kept.id}])
assert pool.extension_ids == [folded.id, kept.id], pool
saw["in use"] = refused(lambda: client.extensions.delete(kept.id))
leased = None
while not leased:  # none became free in time: asked again, until the test's own deadline
    leased = client.browser_pools.acquire(pool.id, acquire_timeout_seconds=60)
Cdp(leased).shows("red", "blue")
client.browser_pools.release(pool.id, session_id=leased.session_id, reuse=False)
assert client.browser_pools.update(pool.id, extensions=[]).extension_ids == []
client.extensions.delete(kept.id)
client.browser_pools.delete(pool.id, force=True)
client.extensions.delete(folded.id)
saw["left"] = [e.name for e in client.extensions.list() if (e.name or "").endswith(mark)]

saw["store"] = [refused(lambda: client.extensions.download_from_chrome_store(url=url)) for url in [
    "https://example.com/detail/cjpalhdlnbpafiamejdnhcphjbkeiagm", "https://chromewebstore.google.com/"]]
saw["os"] = refused(lambda: client.extensions.download_from_chrome_store(
    url="https://chromewebstore.google.com/detail/x/cjpalhdlnbpafiamejdnhcphjbkeiagm", os="beos"))
print(json.dumps(saw))
