"""Logs a profile in to a site with a credential that is stored; for whatever else the site asks, a person opens the address that is shown.

    pip install kernel==0.80.0
    python auth_connection.py shop.example ann https://shop.example/account "ann at the shop"
"""

import os
import sys

from kernel import ConflictError, Kernel

client = Kernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"])
domain, profile, login_url, credential = sys.argv[1:5]
connections = client.auth.connections
try:
    connection = connections.create(
        domain=domain, profile_name=profile, login_url=login_url, credential={"name": credential}
    )
except ConflictError:
    connection = next(iter(connections.list(domain=domain, profile_name=profile)))

login = connections.login(connection.id)
with connections.follow(connection.id) as events:
    for event in events:
        if event.event != "managed_auth_state":
            continue
        if event.flow_step in ("AWAITING_INPUT", "AWAITING_EXTERNAL_ACTION"):
            print("open", login.hosted_url, event.website_error or "", file=sys.stderr)
        if event.flow_status != "IN_PROGRESS":
            print(event.flow_status, event.error_message or event.post_login_url)

session = client.browsers.create(headless=True, profile={"name": profile})
title = f"await page.goto({login_url!r}); await page.waitForTimeout(500); return await page.title()"
print(client.browsers.playwright.execute(session.session_id, code=title).result)
client.browsers.delete_by_id(session.session_id)
