"""connect_browser_use.py ADDRESS PAGES_URL: the browser of a browser-use agent, which only got another address. Without a
model: it opens a page, reads what an agent would be told, presses a button and takes a screenshot."""
import asyncio
import json
import os
import sys

os.environ |= {"ANONYMIZED_TELEMETRY": "false", "BROWSER_USE_CLOUD_SYNC": "false", "BROWSER_USE_VERSION_CHECK": "false",
               "BROWSER_USE_LOGGING_LEVEL": "result", "BROWSER_USE_CONFIG_DIR": os.getcwd()}

from browser_use import BrowserSession  # noqa: E402: it reads the environment when it is imported

address, pages = sys.argv[1:]


async def main():
    session = BrowserSession(cdp_url=address)
    await session.start()
    await session.navigate_to(pages + "/form")
    state = await session.get_browser_state_summary()
    button = next(node for node in state.dom_state.selector_map.values() if node.tag_name == "button")
    page = await session.must_get_current_page()
    await (await page.get_element(button.backend_node_id)).click()
    saw = {
        "title": await page.get_title(),
        "button": button.get_all_children_text(),
        "said": await page.evaluate("() => document.getElementById('said').textContent"),
        "screenshot": (await session.take_screenshot())[1:4].decode(),
    }
    await session.stop()
    return saw


print(json.dumps(asyncio.run(main())))
