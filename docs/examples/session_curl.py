"""Sends requests through a session's browser, with its cookies, its proxy and its TLS, with the public Python client.

    pip install kernel==0.80.0
    CASEMENT_KEY=… python session_curl.py [URL]
"""
import os
import sys

from kernel import Kernel

client = Kernel(
    base_url=os.environ.get("CASEMENT_URL", "http://127.0.0.1:8080"),  # all that points it to Casement
    api_key=os.environ["CASEMENT_KEY"],
)
url = sys.argv[1] if len(sys.argv) > 1 else "https://example.com"

session = client.browsers.create(headless=True)
try:
    answer = client.browsers.curl(session.session_id, url=url, headers={"Accept": "text/html"})
    print(answer.status, len(answer.body) > 0)

    # The same as an ordinary answer of the HTTP library, of any length and any method.
    raw = client.browsers.request(session.session_id, "GET", url)
    print(raw.status_code, raw.text == answer.body)
finally:
    client.browsers.delete_by_id(session.session_id)
