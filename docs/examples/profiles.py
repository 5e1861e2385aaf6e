"""Logs in once, keeps the login as a profile, and is logged in in the next session, with the public Python client.

    pip install kernel==0.80.0
    CASEMENT_KEY=… python profiles.py [URL]
"""
import os
import sys

from kernel import Kernel

client = Kernel(
    base_url=os.environ.get("CASEMENT_URL", "http://127.0.0.1:8080"),  # all that points it to Casement
    api_key=os.environ["CASEMENT_KEY"],
)
url = sys.argv[1] if len(sys.argv) > 1 else "https://example.com"


def visit(script, save_changes):
    """Runs a script in a page of a session with the profile, and ends the session."""
    session = client.browsers.create(headless=True, profile={"name": "shop", "save_changes": save_changes})
    try:
        code = f"await page.goto({url!r}); return await page.evaluate(() => {script});"
        done = client.browsers.playwright.execute(session.session_id, code=code, timeout_sec=30)
        return done.result if done.success else sys.exit(done.error)
    finally:
        client.browsers.delete_by_id(session.session_id)  # what is to be saved is saved when this returns


profile = client.profiles.create(name="shop")
try:
    # What a person would do, fill in a form and answer a question: a cookie and an entry of a store stand for it.
    visit("{ document.cookie = 'login=ann'; localStorage.setItem('theme', 'dark') }", save_changes=True)
    print(*visit("[document.cookie, localStorage.getItem('theme')]", save_changes=False))
finally:
    client.profiles.delete(profile.id)
