"""An extension that is kept, loaded into a browser at its start, and a second one loaded while it runs.

    pip install kernel==0.80.0
"""
import io
import json
import os
import sys
import zipfile

from kernel import Kernel


def packed(word):
    """The ZIP of an extension that writes a word into the title of every page."""
    manifest = {
        "manifest_version": 3,
        "name": word,
        "version": "1.0",
        "content_scripts": [{"matches": ["http://*/*", "https://*/*"], "js": ["content.js"], "run_at": "document_end"}],
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("content.js", f"document.title += ' {word}'")
    return out.getvalue()


client = Kernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"])
client.extensions.upload(name="example-kept", file=packed("kept"))
browser = client.browsers.create(headless=True, extensions=[{"name": "example-kept"}])
client.browsers.load_extensions(
    browser.session_id, extensions=[{"name": "example-loaded", "zip_file": packed("loaded")}]
)
title = "await page.goto('" + sys.argv[1] + "'); return await page.title()"
print(client.browsers.playwright.execute(browser.session_id, code=title).result)
client.browsers.delete_by_id(browser.session_id)
client.extensions.delete("example-kept")
