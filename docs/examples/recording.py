"""Records what a session shows while it opens a page, and downloads the film, with the public Python client.

    pip install kernel==0.80.0
    CASEMENT_KEY=… python recording.py [URL]

It prints the address of a page that plays the recording, and leaves recording.mp4 where it runs.
"""
import os
import sys
import time

from kernel import Kernel

client = Kernel(
    base_url=os.environ.get("CASEMENT_URL", "http://127.0.0.1:8080"),  # all that points it to Casement
    api_key=os.environ["CASEMENT_KEY"],
)
url = sys.argv[1] if len(sys.argv) > 1 else "https://example.com"

session = client.browsers.create(headless=True, start_url=url)
try:
    replay = client.browsers.replays.start(session.session_id, framerate=10, max_duration_in_seconds=60)
    print(replay.replay_view_url)
    time.sleep(3)  # whatever is to be recorded
    client.browsers.replays.stop(replay.replay_id, id=session.session_id)
    film = client.browsers.replays.download(replay.replay_id, id=session.session_id)
    film.write_to_file("recording.mp4")
finally:
    client.browsers.delete_by_id(session.session_id)  # recordings end with their session
