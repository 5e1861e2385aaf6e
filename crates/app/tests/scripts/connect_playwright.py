"""connect_playwright.py ADDRESS PAGES_URL: a program with Playwright for Python, which only got another address."""
import json
import sys

from playwright.sync_api import sync_playwright

address, pages = sys.argv[1:]
with sync_playwright() as playwright:
    browser = playwright.chromium.connect_over_cdp(address, timeout=120000)
    page = browser.contexts[0].new_page()
    page.goto(pages + "/green", timeout=120000)
    saw = {"title": page.title(), "screenshot": page.screenshot()[1:4].decode()}
    browser.close()
print(json.dumps(saw))
