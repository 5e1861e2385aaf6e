"""An app for Casement: takes a browser, opens a page, and returns its title and a screenshot.

    casement deploy docs/examples/app_python
    casement invoke page-python look '{"url": "https://example.com"}'
"""
import base64

import kernel
from kernel import Kernel, KernelContext

client = Kernel()  # where Casement is and by which key stands in the environment
app = kernel.App("page-python")


@app.action("look")
def look(context: KernelContext, payload: dict) -> dict:
    print("opening", payload["url"])
    browser = client.browsers.create(headless=True, invocation_id=context.invocation_id)
    try:
        seen = client.browsers.playwright.execute(
            browser.session_id,
            code=f"await page.goto({payload['url']!r}); return await page.title()",
        )
        if not seen.success:
            raise RuntimeError(seen.error)
        picture = client.browsers.computer.capture_screenshot(browser.session_id).read()
    finally:
        client.browsers.delete_by_id(browser.session_id)
    return {"title": seen.result, "screenshot": base64.b64encode(picture).decode()}
