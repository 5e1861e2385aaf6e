"""proxies.py PAGES_HOST:PORT: the public Python client, unmodified, on every call of proxies, and pages that go through them."""
import base64
import json
import os
import socket
import sys
import threading
import time

import kernel
import websocket
from kernel import Kernel

pages_host, pages_port = sys.argv[1].split(":")
client = Kernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"], max_retries=0, timeout=300)
NAME, PASSWORD = "me", "hunter2:@/%"
saw = {}


class Exit:
    """A proxy that requires a password and leads every request to the pages."""

    def __init__(self, protocol):
        self.asked, self.protocol = [], protocol
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def serve(self, client):
        try:
            origin = self.http(client) if self.protocol == "http" else self.socks(client)
        except OSError:
            origin = None
        if origin is None:
            return client.close()
        threading.Thread(target=copy, args=(origin, client), daemon=True).start()
        copy(client, origin)

    def http(self, client):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            part = client.recv(1)
            if not part:
                return None
            head += part
        line = head.split(b"\r\n")[0].decode()
        good = base64.b64encode(f"{NAME}:{PASSWORD}".encode())
        if b"basic " + good.lower() not in head.lower():
            client.sendall(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n")
            return None
        self.asked.append(line)
        if ".invalid" in line:
            client.sendall(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")
            return None
        origin = socket.create_connection((pages_host, int(pages_port)))
        if line.startswith("CONNECT"):
            client.sendall(b"HTTP/1.1 200 Yes\r\n\r\n")
        else:
            method, url, version = line.split(" ")
            path = "/" + url.split("/", 3)[3]
            origin.sendall(head.replace(line.encode(), f"{method} {path} {version}".encode(), 1))
        return origin

    def socks(self, client):
        exactly(client, exactly(client, 2)[1])
        client.sendall(b"\x05\x02")
        name = exactly(client, exactly(client, 2)[1])
        password = exactly(client, exactly(client, 1)[0])
        good = (name, password) == (NAME.encode(), PASSWORD.encode())
        client.sendall(b"\x01\x00" if good else b"\x01\x01")
        if not good:
            return None
        kind = exactly(client, 4)[3]
        host = exactly(client, exactly(client, 1)[0] if kind == 3 else 4)
        exactly(client, 2)
        self.asked.append(host.decode(errors="replace"))
        if host.endswith(b".invalid"):
            client.sendall(b"\x05\x04\x00\x01\0\0\0\0\0\0")
            return None
        client.sendall(b"\x05\x00\x00\x01\0\0\0\0\0\0")
        return socket.create_connection((pages_host, int(pages_port)))


def exactly(client, length):
    found = b""
    while len(found) < length:
        part = client.recv(length - len(found))
        if not part:
            raise OSError("ended")
        found += part
    return found


def copy(source, to):
    try:
        while data := source.recv(65536):
            to.sendall(data)
    except OSError:
        pass
    for end in (source, to):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def refused(call):
    try:
        call()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"], *[d["code"] for d in error.body.get("details") or []]]
    return "not refused"


def text_of(session, url):
    """Returns the text of a page."""
    ws = websocket.create_connection(session.cdp_ws_url, timeout=120, suppress_origin=True)
    number = 0

    def call(method, params=None, page=None):
        nonlocal number
        number += 1
        ws.send(json.dumps({"id": number, "method": method, "params": params or {}, **({"sessionId": page} if page else {})}))
        while True:
            message = json.loads(ws.recv())
            if message.get("id") == number:
                # An evaluation during a navigation has no response.
                return message.get("result", {})

    target = call("Target.createTarget", {"url": "about:blank"})["targetId"]
    page = call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
    call("Page.navigate", {"url": url}, page)
    end = time.monotonic() + 60
    while True:
        probe = "location.href != 'about:blank' && document.readyState == 'complete' ? document.title + '|' + document.body?.innerText : ''"
        found = call("Runtime.evaluate", {"expression": probe, "returnByValue": True}, page).get("result", {}).get("value")
        if found:
            ws.close()
            return found.split("|")[0] or found.split("|")[1].strip()
        assert time.monotonic() < end, url
        time.sleep(0.05)


def make(exit, name, password=PASSWORD, **more):
    config = {"host": "127.0.0.1", "port": exit.port, "username": NAME, "password": password}
    return client.proxies.create(type="custom", name=name, protocol=exit.protocol, config=config, **more)


http, socks = Exit("http"), Exit("socks5")
one = make(http, "exit", bypass_hosts=["*.inner.example"])
two = make(socks, "exit")
wrong = make(http, "wrong", password="nonsense")
raw = client.proxies.with_raw_response.retrieve(one.id).text()
saw["made"] = [one.status, two.status, wrong.status, one.bypass_hosts, json.loads(raw)["config"]["has_password"]]
saw["shown"] = PASSWORD in raw
saw["listed"] = [proxy.name for proxy in client.proxies.list(name="EXIT")]
saw["renamed"] = client.proxies.update(two.id, name="other").name
saw["checked"] = [client.proxies.check(one.id).status, client.proxies.check(wrong.id).status]
saw["read through"] = client.proxies.check(one.id, url="http://only-there.example/form").status
saw["refused"] = [
    refused(lambda: client.proxies.check(one.id, url="http://10.0.0.1/")),
    refused(lambda: client.proxies.create(type="residential")),
    refused(lambda: client.proxies.retrieve("nothing")),
    refused(lambda: client.browsers.create(headless=True, proxy_id="nothing")),
]
again = make(http, "Other")
saw["ambiguous"] = refused(lambda: client.browsers.create(headless=True, proxy_id="other"))
client.proxies.delete(again.id)

http.asked.clear(), socks.asked.clear()
session = client.browsers.create(headless=True, proxy_id="exit", timeout_seconds=900)
saw["through http"] = text_of(session, "http://only-there.example/form")
saw["asked http"] = any("only-there.example" in line for line in http.asked)
client.browsers.update(session.session_id, proxy_id=two.id)
saw["through socks"] = text_of(session, "http://another.example/green")
saw["asked socks"] = "another.example" in socks.asked
socks.close()
saw["down"] = text_of(session, "http://third.example/form")
client.browsers.update(session.session_id, proxy_id=wrong.id)
saw["wrong"] = text_of(session, "http://third.example/form")
saw["straight"] = [client.browsers.update(session.session_id, proxy_id="").proxy_id, text_of(session, f"http://{pages_host}:{pages_port}/form")]
client.proxies.delete(wrong.id)
saw["unavailable"] = client.proxies.check(two.id).status

pool = client.browser_pools.create(name="behind", size=1, headless=True, proxy_id="exit")
saw["in use"] = refused(lambda: client.proxies.delete(one.id))
leased = client.browser_pools.acquire("behind", acquire_timeout_seconds=240)
http.asked.clear()
saw["through pool"] = [text_of(leased, "http://pooled.example/form"), any("pooled.example" in line for line in http.asked)]
client.browser_pools.delete("behind", force=True)
client.proxies.delete(one.id)
client.proxies.delete(two.id)
saw["left"] = len(client.proxies.list().items)
client.browsers.delete_by_id(session.session_id)
print(json.dumps(saw))
