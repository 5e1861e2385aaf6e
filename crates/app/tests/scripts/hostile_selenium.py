"""hostile_selenium.py ADDRESS TOKEN: capabilities that would start another browser, in every place that has room for them.

It prints, for each, whether a session came of it and where that session's browser stood.
"""
import base64
import json
import sys
import urllib.error
import urllib.request

from selenium import webdriver
from selenium.webdriver.remote.client_config import ClientConfig

address, token = sys.argv[1:]
EVIL = {
    "binary": "/tmp/casement-evil",
    "args": [
        "--no-sandbox",
        "--user-data-dir=/tmp/casement-evil",
        "--remote-debugging-port=9999",
        "--load-extension=/tmp/casement-evil",
        "--proxy-server=127.0.0.1:1",
    ],
    "prefs": {"download.default_directory": "/tmp/casement-evil"},
    "localState": {"casement-evil": True},
    "extensions": [base64.b64encode(b"casement-evil").decode()],
    "debuggerAddress": "127.0.0.1:1",
    "minidumpPath": "/tmp/casement-evil",
    "androidPackage": "casement.evil",
}
login = {"Authorization": "Basic " + base64.b64encode(f"x:{token}".encode()).decode()}


def raw(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {**login, "Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def by_hand(parameters):
    """Returns the address of a new session's page, or the error."""
    status, answer = raw("POST", "/session", parameters)
    if status != 200:
        return {"status": status, "error": answer["value"]["error"]}
    session = "/session/" + answer["value"]["sessionId"]
    title = raw("GET", session + "/title")[1]["value"]
    raw("DELETE", session)
    return {"status": status, "title": title}


def by_selenium():
    options = webdriver.ChromeOptions()
    options.binary_location = EVIL["binary"]
    for argument in EVIL["args"]:
        options.add_argument(argument)
    options.add_experimental_option("prefs", EVIL["prefs"])
    options.add_experimental_option("detach", False)
    options.add_encoded_extension(EVIL["extensions"][0])
    options.set_capability("proxy", {"proxyType": "manual", "httpProxy": "127.0.0.1:1"})
    login = ClientConfig(remote_server_addr=address, username="x", password=token)
    driver = webdriver.Remote(command_executor=address, options=options, client_config=login)
    try:
        return {"status": 200, "title": driver.title}
    finally:
        driver.quit()


chrome = {"browserName": "chrome", "goog:chromeOptions": EVIL}
print(
    json.dumps(
        {
            "selenium": by_selenium(),
            "alwaysMatch": by_hand({"capabilities": {"alwaysMatch": chrome}}),
            "firstMatch": by_hand({"capabilities": {"firstMatch": [chrome]}}),
            "desiredCapabilities": by_hand({"desiredCapabilities": {"chromeOptions": EVIL, **chrome}}),
            "other names": by_hand({"capabilities": {"alwaysMatch": {"ms:edgeOptions": EVIL, "wdp:x": EVIL}}}),
            "shutdown": raw("GET", "/shutdown")[0],
            "sessions": raw("GET", "/sessions")[0],
        }
    )
)
