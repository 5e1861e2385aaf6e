"""replays.py PAGES_URL HEADLESS: the public Python client, unmodified, on every call of recordings. It leaves film.mp4."""
import itertools
import json
import os
import sys
import time

import kernel
import websocket
from kernel import Kernel

pages, headless = sys.argv[1], sys.argv[2] == "true"
client = Kernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"], max_retries=0, timeout=300)
saw = {}


def refused(call):
    try:
        call()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"]]
    return "not refused"


def until_shown(session, path):
    """Waits until the session's page is at a path, and has been drawn there."""
    socket = websocket.create_connection(session.cdp_ws_url, timeout=120, suppress_origin=True)
    numbers = itertools.count(1)

    def call(method, **more):
        number = next(numbers)
        socket.send(json.dumps({"id": number, "method": method, **more}))
        while (message := json.loads(socket.recv())).get("id") != number:
            pass
        return message.get("result", {})

    target = next(one for one in call("Target.getTargets")["targetInfos"] if one["type"] == "page")["targetId"]
    page = call("Target.attachToTarget", params={"targetId": target, "flatten": True})["sessionId"]
    drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    asked = {"expression": f"location.pathname == '{path}' && {drawn}", "awaitPromise": True, "returnByValue": True}
    end = time.monotonic() + 120
    # An evaluation during a navigation has no response.
    while call("Runtime.evaluate", params=asked, sessionId=page).get("result", {}).get("value") is not True:
        assert time.monotonic() < end, path
        time.sleep(0.05)
    socket.close()


size = {"width": 800, "height": 600}
session = client.browsers.create(headless=headless, viewport=size, start_url=pages + "/green", timeout_seconds=900)
id = session.session_id
try:
    assert client.browsers.replays.list(id) == []
    saw["gpu"] = refused(lambda: client.browsers.replays.start(id, framerate=30))
    saw["sound"] = refused(lambda: client.browsers.replays.start(id, record_audio=True))
    saw["bounds"] = refused(lambda: client.browsers.replays.start(id, max_duration_in_seconds=0))

    replay = client.browsers.replays.start(id, framerate=5, max_duration_in_seconds=900, record_audio=False)
    assert replay.finished_at is None and replay.started_at is not None and id in replay.replay_view_url, replay
    saw["second"] = refused(lambda: client.browsers.replays.start(id))
    saw["running"] = refused(lambda: client.browsers.replays.download(replay.replay_id, id=id))
    until_shown(session, "/green")  # it is recorded while it is still being opened
    time.sleep(6)
    saw["viewport"] = refused(lambda: client.browsers.update(id, viewport={"width": 640, "height": 480}))
    client.browsers.update(id, viewport={"width": 640, "height": 480, "force": True})
    time.sleep(6)  # the encoder starts anew
    client.browsers.replays.stop(replay.replay_id, id=id)
    client.browsers.replays.stop(replay.replay_id, id=id)

    [listed] = client.browsers.replays.list(id)
    assert listed.replay_id == replay.replay_id and listed.finished_at > listed.started_at, listed
    assert listed.status == "finished", listed
    film = client.browsers.replays.download(replay.replay_id, id=id)
    assert film.headers["content-type"] == "video/mp4"
    film.write_to_file("film.mp4")
    part = client.browsers.replays.download(replay.replay_id, id=id, extra_headers={"Range": "bytes=0-99"})
    assert part.http_response.status_code == 206 if hasattr(part, "http_response") else True
    whole = open("film.mp4", "rb").read()
    assert part.read() == whole[:100] and len(whole) == listed.size_bytes
    saw["unknown"] = refused(lambda: client.browsers.replays.stop("nothing", id=id))
    last = client.browsers.replays.start(id, framerate=5)
    saw["page"] = replay.replay_view_url.split("?")[0].endswith(f"/live/{id}/replays/{replay.replay_id}")
finally:
    client.browsers.delete_by_id(id)

# The session has ended; its recordings stay, and the running one is completed.
saw["deleted"] = refused(lambda: client.browsers.retrieve(id))
saw["begun"] = refused(lambda: client.browsers.replays.start(id))
for _ in range(1200):
    kept = client.browsers.replays.list(id)
    assert [one.replay_id for one in kept] == [replay.replay_id, last.replay_id], kept
    if all(one.finished_at for one in kept):
        break
    time.sleep(0.25)
assert [one.status for one in kept] == ["finished", "finished"], kept
assert kept[0] == listed, (kept, listed)
again = client.browsers.replays.download(replay.replay_id, id=id)
assert again.headers["content-type"] == "video/mp4" and again.read() == whole
part = client.browsers.replays.download(replay.replay_id, id=id, extra_headers={"Range": "bytes=100-"})
assert part.read() == whole[100:]
client.browsers.replays.download(last.replay_id, id=id).write_to_file("last.mp4")
client.browsers.replays.stop(last.replay_id, id=id)
saw["neither"] = refused(lambda: client.browsers.replays.stop("nothing", id=id))
print(json.dumps(saw))
