"""files.py PAGES_URL HEADLESS: the public Python client, unmodified, on every call of files."""
import asyncio
import io
import json
import os
import stat
import sys
import threading
import time
import zipfile

import kernel
from kernel import AsyncKernel, Kernel

pages, headless = sys.argv[1], sys.argv[2] == "true"
client = Kernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"], max_retries=0, timeout=300)
saw = {}


def refused(call):
    try:
        call()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"], *[d["code"] for d in error.body.get("details", [])]]
    return "not refused"


def until(what, look, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not in time: {what}")


def stream_of_a_stopped_watch():
    """Yields what still comes of a watch that is stopped while its stream is read."""
    watch = fs.watch.start(id, path="/home/casement").watch_id
    with fs.watch.events(watch, id=id) as stream:
        threading.Timer(1, lambda: fs.watch.stop(watch, id=id)).start()
        yield from stream


session = client.browsers.create(headless=headless, start_url=pages + "/downloads", timeout_seconds=300)
id, fs = session.session_id, client.browsers.fs
try:
    # Directories, a file, its information.
    top = "/tmp/work"
    fs.create_directory(id, path=top + "/a/b", mode="750")
    fs.create_directory(id, path=top + "/a/b")
    fs.create_directory(id, path=top + "/a/c")
    fs.write_file(id, b"", path=top + "/a/d")
    fs.upload(id, files=[{"dest_path": top + "/a/e", "file": b""}])
    saw["modes"] = {entry.name: entry.mode for entry in fs.list_files(id, path=top + "/a")}
    odd = "ünï \n\u202e\U0001f600 \"'\\;.txt"
    fs.write_file(id, b"content \x00\xff", path=f"{top}/{odd}", mode="640")
    assert fs.read_file(id, path=f"{top}/{odd}").read() == b"content \x00\xff"
    assert odd in [entry.name for entry in fs.list_files(id, path=top)]
    info = fs.file_info(id, path=f"{top}/{odd}")
    saw["info"] = [info.name == odd, info.path == f"{top}/{odd}", info.size_bytes, info.is_dir, info.mode]
    assert abs(info.mod_time.timestamp() - time.time()) < 60
    saw["directory"] = [[e.name, e.path, e.size_bytes, e.is_dir, e.mode] for e in fs.list_files(id, path=top + "/../work/./")]
    fs.write_file(id, b"", path=top + "/empty")
    fs.write_file(id, b"second", path=top + "/empty")
    assert fs.read_file(id, path=top + "/empty").read() == b"second"
    fs.set_file_permissions(id, path=top + "/empty", mode="1777", owner="casement", group="1000")
    saw["mode"] = fs.file_info(id, path=top + "/empty").mode
    fs.move(id, src_path=top + "/empty", dest_path=top + "/a/moved")
    fs.move(id, src_path=top + "/a", dest_path="/home/casement/a")
    assert fs.read_file(id, path="/home/casement/a/moved").read() == b"second"
    fs.delete_file(id, path="/home/casement/a/moved")
    saw["before"] = sorted(entry.name for entry in fs.list_files(id, path="/home/casement/a"))
    fs.delete_directory(id, path="/home/casement/a")
    saw["deleted"] = [refused(lambda: fs.list_files(id, path="/home/casement/a")), [e.name for e in fs.list_files(id, path="/home/casement") if e.name == "a"]]

    # Uploads: bytes, a file, a path.
    with open("local", "wb") as file:
        file.write(b"from a file")
    fs.upload(id, files=[
        {"dest_path": top + "/up/1", "file": b"one"},
        {"dest_path": top + "/up/deep/2", "file": open("local", "rb")},
        {"dest_path": top + "/up/3", "file": b""},
    ])
    saw["uploaded"] = [fs.read_file(id, path=top + "/up/" + name).read().decode() for name in ["1", "deep/2", "3"]]

    # As an archive, in both directions.
    fs.write_file(id, os.urandom(3_000_000), path=top + "/up/random")
    archive = fs.download_dir_zip(id, path=top)
    saw["disposition"] = [archive.headers["content-disposition"], archive.headers["content-type"]]
    content = archive.read()
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        assert opened.testzip() is None
        saw["archive"] = sorted(name for name in opened.namelist() if name != odd)
        assert odd in opened.namelist() and stat.S_IMODE(opened.getinfo(odd).external_attr >> 16) == 0o640
    fs.create_directory(id, path=top + "/back/again/up")
    fs.write_file(id, b"is replaced", path=top + "/back/again/up/1")
    fs.upload_zip(id, dest_path=top + "/back/again", zip_file=content)
    assert fs.read_file(id, path=top + "/back/again/up/1").read() == b"one"
    names = lambda path: [entry.name for entry in fs.list_files(id, path=path)]
    assert names(top + "/back/again") == [odd, "up"] or set(names(top + "/back/again")) == {odd, "up"}
    assert fs.read_file(id, path=top + "/back/again/up/random").read() == fs.read_file(id, path=top + "/up/random").read()

    # Watching. A new directory is watched some time after its creation, at the latest when the next event arrives.
    watch = fs.watch.start(id, path=top, recursive=True).watch_id
    fs.create_directory(id, path=top + "/seen")
    fs.write_file(id, b"", path=top + "/next")
    events = []
    with fs.watch.events(watch, id=id) as stream:
        for event in stream:
            events.append([event.type, event.path, event.name, event.is_dir])
            if event.path == top + "/next":
                fs.write_file(id, b"x", path=top + "/seen/new")
                fs.move(id, src_path=top + "/seen/new", dest_path=top + "/seen/other")
                fs.delete_file(id, path=top + "/seen/other")
            if event.type == "DELETE":
                break
    saw["events"] = events
    fs.watch.stop(watch, id=id)
    saw["the stream of a stopped watch"] = [event.type for event in stream_of_a_stopped_watch()]
    saw["stopped"] = refused(lambda: fs.watch.stop(watch, id=id))
    watches = [fs.watch.start(id, path=top).watch_id for _ in range(16)]
    saw["watches"] = refused(lambda: fs.watch.start(id, path=top))

    async def read_by_two():
        async with AsyncKernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"]) as other:
            first = await other.browsers.fs.watch.events(watches[0], id=id)
            second = await other.browsers.fs.watch.events(watches[0], id=id)
            assert [event async for event in first] == []
            await other.browsers.fs.create_directory(id, path=top + "/two")
            async for event in second:
                return event.path

    saw["two readers"] = asyncio.run(asyncio.wait_for(read_by_two(), 120))
    for watch in watches:
        fs.watch.stop(watch, id=id)
    watch = fs.watch.start(id, path=top + "/two").watch_id
    fs.delete_directory(id, path=top + "/two")
    until("the watch has ended", lambda: refused(lambda: fs.watch.stop(watch, id=id)) != "not refused")

    # Downloads and uploads of a page.
    landed = lambda: "from the page.txt" in names("/home/casement/downloads")
    until("a download", landed)
    assert fs.read_file(id, path="/home/casement/downloads/from the page.txt").read() == b"downloaded"

    # Refusals.
    saw["refusals"] = {
        "relative": refused(lambda: fs.list_files(id, path="tmp")),
        "NUL": refused(lambda: fs.list_files(id, path="/tmp/\x00")),
        "long": refused(lambda: fs.list_files(id, path="/" + "x" * 4096)),
        "long name": refused(lambda: fs.write_file(id, b"", path="/tmp/" + "x" * 256)),
        "proc": refused(lambda: fs.read_file(id, path="/proc/1/environ")),
        "root": refused(lambda: fs.list_files(id, path="/proc/self/root")),
        "up": refused(lambda: fs.download_dir_zip(id, path="/tmp/../proc/self/root")),
        "device": refused(lambda: fs.read_file(id, path="/dev/zero")),
        "device mode": refused(lambda: fs.set_file_permissions(id, path="/dev/null", mode="666")),
        "no file": refused(lambda: fs.read_file(id, path="/nowhere")),
        "a directory": refused(lambda: fs.read_file(id, path="/tmp")),
        "a file": refused(lambda: fs.list_files(id, path=f"{top}/{odd}")),
        "system": refused(lambda: fs.write_file(id, b"x", path="/usr/bin/env")),
        "other home": refused(lambda: fs.create_directory(id, path="/root/x")),
        "set-id": refused(lambda: fs.set_file_permissions(id, path=f"{top}/{odd}", mode="4755")),
        "decimal mode": refused(lambda: fs.set_file_permissions(id, path=f"{top}/{odd}", mode="999")),
        "foreign owner": refused(lambda: fs.set_file_permissions(id, path=f"{top}/{odd}", mode="644", owner="0")),
        "foreign name": refused(lambda: fs.set_file_permissions(id, path=f"{top}/{odd}", mode="644", owner="nobody")),
        "unknown owner": refused(lambda: fs.set_file_permissions(id, path=f"{top}/{odd}", mode="644", owner="who")),
        "foreign group": refused(lambda: fs.set_file_permissions(id, path=f"{top}/{odd}", mode="644", group="0")),
        "unknown group": refused(lambda: fs.set_file_permissions(id, path=f"{top}/{odd}", mode="644", group="who")),
        "the root": refused(lambda: fs.delete_directory(id, path="/tmp/..")),
        "a mount": refused(lambda: fs.delete_directory(id, path="/home/casement")),
        "taken": refused(lambda: fs.move(id, src_path=top + "/up/1", dest_path=top + "/up/3")),
        "a file in the way": refused(lambda: fs.create_directory(id, path=top + "/up/1")),
        "no parent": refused(lambda: fs.write_file(id, b"x", path="/tmp/none/x")),
        "no archive": refused(lambda: fs.upload_zip(id, dest_path=top + "/bad", zip_file=b"no archive")),
        "paths and files": refused(lambda: fs.upload(id, files=[{"dest_path": "x", "file": b""}])),
        "another session": refused(lambda: fs.list_files("0" * 26, path="/tmp")),
    }
    assert "bad" not in names(top)
finally:
    client.browsers.delete_by_id(id)

print(json.dumps(saw))
