"""Runs a script beside the browser of a session, with the public Python client: one call instead of many over the network.

    pip install kernel==0.80.0
    CASEMENT_KEY=… python script.py [URL]

It prints the title of the page.
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
    done = client.browsers.playwright.execute(
        session.session_id,
        code=f"""
            type Seen = {{ title: string; links: number }};
            await page.goto({url!r});
            const seen: Seen = {{ title: await page.title(), links: await page.locator('a').count() }};
            return seen;
        """,
        timeout_sec=30,
    )
    if not done.success:
        sys.exit(done.error)
    print(done.result["title"])
finally:
    client.browsers.delete_by_id(session.session_id)
