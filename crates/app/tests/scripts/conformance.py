"""Every method of the public client that works inside a session, and every one of its extensions, as it is. Prints which there are,
by looking at the client itself, and what became of each."""

import base64
import inspect
import io
import json
import os
import sys
import threading
import zipfile

import kernel

client = kernel.Kernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"], max_retries=0, timeout=300)
page_url = sys.argv[1]

# The newer clients name the session differently in calls that name something else first.
SESSION = next(name for name in ("id_or_name", "id")
               if name in inspect.signature(client.browsers.process.status).parameters)
AREAS = ["browsers.computer", "browsers.fs", "browsers.fs.watch", "browsers.playwright", "browsers.process",
         "browsers.replays", "browsers.logs", "extensions"]
ALSO = ["browsers.curl", "browsers.request", "browsers.stream", "browsers.load_extensions"]


def find(path):
    target = client
    for part in path.split("."):
        target = getattr(target, part)
    return target


def methods(area):
    kind = type(find(area))
    names = [name for name, member in vars(kind).items()
             if inspect.isfunction(member) and not name.startswith("_")]
    return [f"{area}.{name}" for name in names]


def extension(name):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"manifest_version": 3, "name": name, "version": "1.0"}))
    return packed.getvalue()


results = {}


def attempt(method, work):
    """Returns the result: True, or the error."""
    try:
        outcome = work(find(method))
        results[method] = True if outcome in (None, True) else f"answered {outcome!r}"
        return outcome
    except Exception as error:  # noqa: BLE001: whatever it is, it is the result
        results[method] = f"{type(error).__name__}: {error}"[:300]


session = client.browsers.create(headless=True, viewport={"width": 800, "height": 600}, timeout_seconds=600)
id = session.session_id
inside = {SESSION: id}
client.browsers.playwright.execute(id, code=f"await page.goto({json.dumps(page_url)})")

computer = "browsers.computer."
attempt(computer + "write_clipboard", lambda m: m(id, text="ä 漢 😀"))
attempt(computer + "read_clipboard", lambda m: m(id).text == "ä 漢 😀")
attempt(computer + "capture_screenshot", lambda m: m(id).read().startswith(b"\x89PNG"))
attempt(computer + "move_mouse", lambda m: m(id, x=10, y=20))
attempt(computer + "get_mouse_position", lambda m: (lambda at: (at.x, at.y) == (10, 20))(m(id)))
attempt(computer + "click_mouse", lambda m: m(id, x=30, y=40))
attempt(computer + "drag_mouse", lambda m: m(id, path=[[5, 5], [50, 50]], step_delay_ms=0))
attempt(computer + "scroll", lambda m: m(id, x=30, y=40, delta_y=2))
attempt(computer + "press_key", lambda m: m(id, keys=["Escape"]))
attempt(computer + "type_text", lambda m: m(id, text="x"))
attempt(computer + "set_cursor_visibility", lambda m: m(id, hidden=True).ok)
attempt(computer + "batch", lambda m: m(id, actions=[{"type": "move_mouse", "move_mouse": {"x": 1, "y": 1}}]))

fs, top = "browsers.fs.", "/home/casement/conformance"
attempt(fs + "create_directory", lambda m: m(id, path=top))
watch = attempt("browsers.fs.watch.start", lambda m: setattr(sys, "watched", m(id, path=top).watch_id))
attempt(fs + "write_file", lambda m: m(id, b"one", path=top + "/one"))


def first_event(method):
    with method(sys.watched, **inside) as events:
        later = threading.Timer(0.5, lambda: client.browsers.fs.write_file(id, b"two", path=top + "/two"))
        later.start()
        try:
            return next(iter(events)).path.startswith(top)
        finally:
            # Otherwise it may write into the directory while that is deleted.
            later.join()


attempt("browsers.fs.watch.events", first_event)
attempt("browsers.fs.watch.stop", lambda m: m(sys.watched, **inside))
attempt(fs + "read_file", lambda m: m(id, path=top + "/one").read() == b"one")
attempt(fs + "file_info", lambda m: m(id, path=top + "/one").size_bytes == 3)
attempt(fs + "list_files", lambda m: "one" in [entry.name for entry in m(id, path=top)])
attempt(fs + "set_file_permissions", lambda m: m(id, path=top + "/one", mode="600"))
attempt(fs + "move", lambda m: m(id, src_path=top + "/one", dest_path=top + "/moved"))
attempt(fs + "upload", lambda m: m(id, files=[{"dest_path": top + "/up", "file": b"up"}]))
attempt(fs + "upload_zip", lambda m: m(id, dest_path=top + "/zip", zip_file=extension("zip")))
attempt(fs + "download_dir_zip",
        lambda m: "up" in zipfile.ZipFile(io.BytesIO(m(id, path=top).read())).namelist())
attempt(fs + "delete_file", lambda m: m(id, path=top + "/moved"))
attempt(fs + "delete_directory", lambda m: m(id, path=top))

attempt("browsers.playwright.execute", lambda m: m(id, code="const n: number = 6; return n * 7").result == 42)

process = "browsers.process."
attempt(process + "exec", lambda m: base64.b64decode(m(id, command="echo", args=["hi"]).stdout_b64) == b"hi\n")
attempt(process + "spawn",
        lambda m: setattr(sys, "spawned", m(id, command="cat", allocate_tty=True).process_id))
attempt(process + "status", lambda m: m(sys.spawned, **inside).state == "running")
attempt(process + "resize", lambda m: m(sys.spawned, **inside, cols=100, rows=30).ok)
attempt(process + "stdin",
        lambda m: m(sys.spawned, **inside, data_b64=base64.b64encode(b"line\n").decode()).written_bytes == 5)


def first_output(method):
    # A stream that is left early must be closed: otherwise the garbage collector may close it while the client holds a lock.
    with method(sys.spawned, **inside) as output:
        return next(iter(output)).stream == "stdout"


attempt(process + "stdout_stream", first_output)
attempt(process + "kill", lambda m: m(sys.spawned, **inside, signal="KILL").ok)

attempt("browsers.replays.start", lambda m: setattr(sys, "replay", m(id).replay_id))
attempt("browsers.replays.list", lambda m: [one.replay_id for one in m(id)] == [sys.replay])
client.browsers.playwright.execute(id, code="await page.waitForTimeout(1000)")
attempt("browsers.replays.stop", lambda m: m(sys.replay, **inside))
attempt("browsers.replays.download", lambda m: m(sys.replay, **inside).read()[4:8] == b"ftyp")

attempt("browsers.logs.stream",
        lambda m: [event for event in m(id, source="path", path="/etc/passwd", follow=False)] != [])

attempt("browsers.curl", lambda m: m(id, url=page_url).status == 200)
attempt("browsers.request", lambda m: m(id, "GET", page_url).status_code == 200)


def streamed(method):
    with method(id, "GET", page_url) as response:
        return len(b"".join(response.iter_bytes())) > 0


attempt("browsers.stream", streamed)
attempt("browsers.load_extensions",
        lambda m: m(id, extensions=[{"name": "loaded", "zip_file": extension("loaded")}]))

# Once: an archive contains the time of its creation.
kept = extension("kept")
attempt("extensions.upload", lambda m: m(file=kept, name="kept").name == "kept")
attempt("extensions.list", lambda m: [one.name for one in m(name="KEPT")] == ["kept"])
attempt("extensions.get", lambda m: m("kept").checksum is not None)
attempt("extensions.download", lambda m: m("kept").read() == kept)
attempt("extensions.delete", lambda m: m("kept"))


def from_the_store(method):
    """There is no store here: the call is understood, and the egress refuses the download."""
    try:
        method(url="https://chromewebstore.google.com/detail/x/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
    except kernel.APIStatusError as error:
        return error.status_code == 502 or f"{error.status_code} {error.body}"


attempt("extensions.download_from_chrome_store", from_the_store)

client.browsers.delete_by_id(id)
there_are = sorted({method for area in AREAS for method in methods(area)} | set(ALSO))
failed = {method: results.get(method, "never called") for method in there_are if results.get(method) is not True}
print(json.dumps({"methods": len(there_are), "work": len(there_are) - len(failed), "failed": failed}))
