"""processes.py HEADLESS: the public Python client, unmodified, on programs, logs and requests of a session.

The client checks each answer against its own types (`_strict_response_validation`).
"""
import base64
import http.server
import json
import os
import sys
import threading

import kernel
from kernel import Kernel

where = {"base_url": os.environ["CASEMENT_URL"], "api_key": os.environ["CASEMENT_KEY"], "timeout": 300}
strict = Kernel(**where, max_retries=0, _strict_response_validation=True)
headless = sys.argv[1] == "true"


class Site(http.server.BaseHTTPRequestHandler):
    """Answers the request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        sent = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        heard = {name.lower(): value for name, value in self.headers.items()}
        body = json.dumps({"method": self.command, "path": self.path, "headers": heard, "body": sent}).encode()
        status, more = 200, []
        if self.path == "/cookies":
            more = [("Set-Cookie", "strict=1; SameSite=Strict"), ("Set-Cookie", "script=no; HttpOnly")]
        elif self.path == "/away":
            status, more = 302, [("Location", "/elsewhere")]
        elif self.path == "/missing":
            status = 404
        elif self.path == "/bytes":
            body, more = bytes(range(256)), [("Content-Disposition", "attachment; filename=x.bin")]
        elif self.path == "/long":
            body = b"x" * (11 << 20)
        elif self.path == "/silent":
            hold.wait(60)
        self.send_response(status)
        for name, value in [*more, ("Content-Length", str(len(body)))]:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = answer


hold = threading.Event()
site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
threading.Thread(target=site.serve_forever, daemon=True).start()
SITE = f"http://127.0.0.1:{site.server_port}"


def text(encoded):
    return base64.b64decode(encoded).decode()


def bytes64(data):
    return base64.b64encode(data).decode()


def refused(call):
    """Status and code of the error that the client raises; the detail's code where there is one."""
    try:
        call()
    except kernel.APIStatusError as error:
        details = [detail.get("code") for detail in error.body.get("details") or []]
        return [type(error).__name__, error.body.get("code"), *details]
    return "not refused"


def below(call):
    """Returns the inner error."""
    try:
        call()
    except kernel.APIStatusError as error:
        return error.body.get("inner_error", {}).get("code")
    return "not refused"


def processes(session):
    process = strict.browsers.process
    run = process.exec(session, command="printf '%s|' a \"$WORD\" \"$PWD\"; echo bad >&2; exit 3", cwd="/tmp", env={"WORD": "ü"})
    direct = process.exec(session, command="printf", args=["%s", "$HOME *"])
    spawned = process.spawn(session, command="read line; echo got $line; exit 5")
    running = process.status(spawned.process_id, id=session)
    written = process.stdin(spawned.process_id, id=session, data_b64=bytes64(b"hello\n")).written_bytes
    said = list(process.stdout_stream(spawned.process_id, id=session))
    tty = process.spawn(session, command="read line; stty size", allocate_tty=True, cols=100, rows=30)
    assert process.resize(tty.process_id, id=session, cols=120, rows=40).ok
    process.stdin(tty.process_id, id=session, data_b64=bytes64(b"\n"))
    shown = "".join(text(event.data_b64) for event in process.stdout_stream(tty.process_id, id=session) if event.data_b64)
    ended = process.spawn(session, command="sleep 1000")
    assert process.kill(ended.process_id, id=session, signal="TERM").ok
    last = list(process.stdout_stream(ended.process_id, id=session))[-1]
    return {
        "exec": [run.exit_code, text(run.stdout_b64), text(run.stderr_b64)],
        "direct": text(direct.stdout_b64),
        "nothing": process.exec(session, command="no-such-program", args=[]).exit_code,
        "running": [running.state, running.exit_code, running.mem_bytes > 0],
        "stdin": [written, [text(event.data_b64) for event in said if event.data_b64], said[-1].event, said[-1].exit_code],
        "status": process.status(spawned.process_id, id=session).exit_code,
        "tty": shown.split("\r\n")[-2],
        "killed": [last.event, last.exit_code],
        "too late": refused(lambda: process.kill(ended.process_id, id=session, signal="KILL")),
        "timeout": refused(lambda: process.exec(session, command="sleep 100", timeout_sec=1)),
        "root": refused(lambda: process.exec(session, command="id", as_root=True)),
        "user": refused(lambda: process.spawn(session, command="id", as_user="root")),
        "directory": refused(lambda: process.exec(session, command="id", cwd="/nowhere")),
        "unknown": refused(lambda: process.status("nothing", id=session)),
        # No process of this test has that name.
        "shells": [process.exec(session, command="pkill", args=["-x", "sh"]).exit_code, process.exec(session, command="pkill sh").exit_code],
        "after": process.exec(session, command="exit 7").exit_code,
    }


def logs(session):
    strict.browsers.process.exec(session, command="printf 'one\\n\\033[31mtwo\\n' > /tmp/log")
    stream = strict.browsers.logs.stream
    whole = [line.message for line in stream(session, source="path", path="/tmp/log", follow=False)]
    followed = stream(session, source="path", path="/tmp/log")
    lines = [next(followed).message, next(followed).message]
    strict.browsers.process.exec(session, command="echo three >> /tmp/log")
    lines.append(next(followed).message)
    followed.response.close()
    own = {}
    for name in ["chromium", "display", "agent"]:
        own[name] = len(list(stream(session, source="supervisor", supervisor_process=name, follow=False)))
    return {
        "whole": whole,
        "followed": lines,
        "chromium": own["chromium"] > 0,
        "process": refused(lambda: stream(session, source="path", path="/proc/1/environ")),
        "missing": refused(lambda: stream(session, source="path", path="/tmp/nothing")),
        "unknown": refused(lambda: stream(session, source="supervisor", supervisor_process="sshd")),
    }


def requests(session):
    curl = lambda path, **more: strict.browsers.curl(session, url=SITE + path, **more)
    first = curl("/cookies")
    posted = curl("/post", method="POST", body='{"a": "ü"}', headers={"Content-Type": "application/json", "X-Mine": "1"})
    heard = json.loads(posted.body)
    away = curl("/away")
    raw = strict.browsers.request(session, "PUT", SITE + "/raw?a=1", content=b"body", params={"b": "2 3"}, headers={"X-Mine": "2"})
    passed = raw.json()
    missing = refused(lambda: strict.browsers.request(session, "GET", SITE + "/missing"))
    answer = {
        "cookies": first.headers["set-cookie"],
        "posted": [heard["method"], heard["body"], heard["headers"]["content-type"], heard["headers"]["x-mine"]],
        "sent back": sorted(heard["headers"]["cookie"].split("; ")),
        "agent": heard["headers"]["user-agent"].startswith("Mozilla/5.0"),
        "head": [curl("/", method="HEAD").status, curl("/", method="HEAD").body],
        "away": [away.status, away.headers["location"], away.body],
        "missing": curl("/missing").status,
        "bytes": base64.b64decode(curl("/bytes", response_encoding="base64").body) == bytes(range(256)),
        "too long": refused(lambda: curl("/long")),
        "silent": refused(lambda: curl("/silent", timeout_ms=700)),
        "file": refused(lambda: strict.browsers.curl(session, url="file:///etc/passwd")),
        "below": [
            below(lambda: curl("/long")),
            below(lambda: curl("/silent", timeout_ms=700)),
            below(lambda: strict.browsers.curl(session, url="http://10.0.0.1/")),
            below(lambda: strict.browsers.curl(session, url=SITE.replace("http:", "https:"))),
        ],
        "private": refused(lambda: strict.browsers.curl(session, url="http://10.0.0.1/")),
        "metadata": refused(lambda: strict.browsers.curl(session, url="https://169.254.169.254/")),
        "raw": [raw.status_code, passed["method"], passed["path"], passed["body"], passed["headers"]["x-mine"]],
        "raw kept back": [name for name in passed["headers"] if name.startswith(("x-stainless", "authorization", "x-kernel"))],
        "raw missing": missing[0],
    }
    hold.set()
    return answer


session = strict.browsers.create(headless=headless, timeout_seconds=900)
try:
    id = session.session_id
    saw = {"processes": processes(id), "logs": logs(id), "requests": requests(id)}
finally:
    strict.browsers.delete_by_id(session.session_id)
print(json.dumps(saw))
