"""Sends a session's traffic through a proxy, then straight again, without a restart of its browser, with the public Python client.

    pip install kernel==0.80.0
    CASEMENT_KEY=… python proxies.py HOST PORT USER PASSWORD [URL]
"""
import os
import sys

from kernel import Kernel

client = Kernel(
    base_url=os.environ.get("CASEMENT_URL", "http://127.0.0.1:8080"),  # all that points it to Casement
    api_key=os.environ["CASEMENT_KEY"],
)
host, port, user, password = sys.argv[1:5]
url = sys.argv[5] if len(sys.argv) > 5 else "https://example.com"

# Kept for the project, with its password sealed. It is checked at once: `unavailable` says that it does not take these credentials.
proxy = client.proxies.create(
    type="custom",
    protocol="http",  # or https, socks5
    name="exit",
    config={"host": host, "port": int(port), "username": user, "password": password},
)
print("the proxy is", proxy.status)
try:
    session = client.browsers.create(headless=True, proxy_id=proxy.id)
    try:
        print("through it:", client.browsers.curl(session.session_id, url=url).status)
        client.browsers.update(session.session_id, proxy_id="")  # or the id of another one
        print("straight:", client.browsers.curl(session.session_id, url=url).status)
    finally:
        client.browsers.delete_by_id(session.session_id)
finally:
    client.proxies.delete(proxy.id)
