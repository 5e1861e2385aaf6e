"""Takes a browser from the pool `default` with the public Python client, takes a picture of it, gives it back.

    pip install kernel==0.80.0
    CASEMENT_KEY=… python kernel_client.py [URL]

It prints the session's pool and leaves kernel.png where it runs.
"""
import os
import sys

from kernel import Kernel

client = Kernel(
    base_url=os.environ.get("CASEMENT_URL", "http://127.0.0.1:8080"),  # all that points it to Casement
    api_key=os.environ["CASEMENT_KEY"],
)
url = sys.argv[1] if len(sys.argv) > 1 else "https://example.com"

session = None
while not session:  # an empty answer: none became free in time, ask again
    session = client.browser_pools.acquire("default", start_url=url, tags={"example": "kernel_client.py"})
try:
    print(session.pool.name)
    client.browsers.computer.capture_screenshot(session.session_id).write_to_file("kernel.png")
finally:
    client.browser_pools.release("default", session_id=session.session_id)
