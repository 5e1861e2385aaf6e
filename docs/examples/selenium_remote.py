"""Takes a browser from the pool `default`, drives it with Selenium, BiDi included, gives it back.

    pip install selenium
    CASEMENT_KEY=… python selenium_remote.py [URL]

It prints the page's title and leaves selenium.png where it runs.
"""
import json
import os
import sys
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

from selenium import webdriver
from selenium.webdriver.remote.client_config import ClientConfig

api = os.environ.get("CASEMENT_URL", "http://127.0.0.1:8080")
url = sys.argv[1] if len(sys.argv) > 1 else "https://example.com"


def call(path, body=None):
    headers = {"Authorization": "Bearer " + os.environ["CASEMENT_KEY"], "Content-Type": "application/json"}
    with urlopen(Request(api + path, json.dumps(body or {}).encode(), headers, method="POST")) as answer:
        return json.load(answer) if answer.status == 200 else None


session = None
while not session:  # 204: none became free in time, ask again
    session = call("/browser_pools/default/acquire")
try:
    # The session's own token is the password; the user name does not matter.
    token = parse_qs(urlsplit(session["cdp_ws_url"]).query)["jwt"][0]
    address = session["base_url"] + "/wd"
    options = webdriver.ChromeOptions()
    options.enable_bidi = True  # leave it out if you need no driver.script, driver.network …
    login = ClientConfig(remote_server_addr=address, username="casement", password=token)
    driver = webdriver.Remote(command_executor=address, options=options, client_config=login)
    try:
        driver.get(url)
        print(driver.title)
        driver.save_screenshot("selenium.png")
    finally:
        driver.quit()  # detaches; the browser and its pages stay
finally:
    call("/browser_pools/default/release", {"session_id": session["session_id"]})
