"""Capture what happens in a session, read it page by page, and follow it: telemetry.py

    pip install kernel==0.80.0
"""

import os

from kernel import Kernel

client = Kernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"])
session = client.browsers.create(headless=True, telemetry={"browser": {"console": {"enabled": True}}})
try:
    client.browsers.playwright.execute(session.session_id, code="await page.evaluate(() => console.log('hello'))")
    client.browsers.computer.capture_screenshot(session.session_id).read()

    # As it happens; replay="all" begins with what has happened already. What comes here can be read from now on.
    awaited = {"console_log", "api_call"}
    with client.browsers.telemetry.stream(session.session_id, replay="all") as events:
        for one in events:
            print(one.seq, one.event.type)
            awaited.discard(one.event.type)
            if not awaited:
                break

    # Page by page; the client asks for the next one by itself.
    read = list(client.browsers.telemetry.events(session.session_id, since="1h", limit=2))
    print(len(read), "events:", sorted({one.event.type for one in read}))
finally:
    client.browsers.delete_by_id(session.session_id)
