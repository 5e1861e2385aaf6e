"""selenium_drive.py ADDRESS TOKEN PAGES_URL [display]: what a program does with one browser, classic and BiDi."""
import json
import queue
import struct
import sys
import warnings
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

address, token, pages, *display = sys.argv[1:]
# The short form, which Selenium calls insecure: the password is in the address.
warnings.simplefilter("ignore")
parts = urlsplit(address)
remote = parts._replace(netloc=f"x:{token}@{parts.netloc}").geturl()

options = webdriver.ChromeOptions()
options.enable_bidi = True
driver = webdriver.Remote(remote, options=options)


def windows():
    """Returns what became of the window after each operation on it."""

    def seen():
        sides = "[screenX, screenY, outerWidth, outerHeight, document.visibilityState]"
        return driver.execute_script(f"return {sides}.join()")

    def reaches(what):
        try:
            WebDriverWait(driver, 120, poll_frequency=0.05).until(lambda _: seen() == what)
        except TimeoutException as error:
            raise AssertionError(f"after {became}: {seen()}, not {what}") from error
        return what

    became = []
    rect = driver.set_window_rect(50, 60, 700, 500)
    became.append([rect[side] for side in ("x", "y", "width", "height")])
    became.append(reaches("50,60,700,500,visible"))
    driver.maximize_window()
    became.append(reaches("0,0,1920,1080,visible"))
    driver.minimize_window()
    became.append(reaches("50,60,700,500,hidden"))
    driver.fullscreen_window()
    became.append(reaches("0,0,1920,1080,visible"))
    window = driver.browser.get_client_windows()[0].client_window
    # Over BiDi the answer may still name the state before.
    for state, what in [
        ("normal", "50,60,700,500,visible"),
        ("minimized", "50,60,700,500,hidden"),
        ("normal", "50,60,700,500,visible"),
        ("fullscreen", "0,0,1920,1080,visible"),
        ("normal", "50,60,700,500,visible"),
        ("maximized", "0,0,1920,1080,visible"),
        # In one step with the next, a busy Chromium sometimes loses the place that it was asked for while it is restored.
        ("normal", "50,60,700,500,visible"),
        ({"state": "normal", "x": 10, "y": 20, "width": 1900, "height": 1000}, "10,20,1900,1000,visible"),
    ]:
        driver.browser.set_client_window_state(window, state)
        became.append(reaches(what))
    return became


saw = {}
try:
    saw["websocket"] = driver.capabilities["webSocketUrl"].split("/session/")[0]
    try:
        driver.get("http://nowhere.invalid/")
        saw["unknown name"] = "a page"
    except WebDriverException as error:
        saw["unknown name"] = error.msg.split("\n")[0]
    driver.get(pages + "/form")
    driver.find_element(By.ID, "name").send_keys("Ada")
    driver.find_element(By.ID, "press").click()
    saw["said"] = driver.find_element(By.ID, "said").text
    saw["seen"] = driver.execute_script("return window.seen")
    saw["picture"] = struct.unpack(">II", driver.get_screenshot_as_png()[16:24])

    # BiDi, over the address in the response.
    lines = queue.Queue()
    handler = driver.script.add_console_message_handler(lambda entry: lines.put(entry.text))
    driver.execute_script("console.log('heard over BiDi')")
    saw["console"] = lines.get(timeout=120)
    driver.script.remove_console_message_handler(handler)
    tree = driver.browsing_context.get_tree()
    saw["tree"] = [context.url for context in tree]
    driver.browsing_context.navigate(context=tree[0].context, url=pages + "/green", wait="complete")
    WebDriverWait(driver, 120).until(lambda d: d.title == "Green")
    saw["title"] = driver.title
    if display:
        saw["windows"] = windows()
finally:
    driver.quit()
print(json.dumps(saw))
