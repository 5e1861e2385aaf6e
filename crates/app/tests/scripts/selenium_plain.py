"""selenium_plain.py ADDRESS PAGES_URL: a test of a Selenium Grid, which needs only another address for Casement."""
import json
import sys
import warnings

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

address, pages = sys.argv[1:]
# The short form, which Selenium calls insecure: the password is in the address.
warnings.simplefilter("ignore")
options = webdriver.ChromeOptions()
options.add_argument("--headless=new")
options.page_load_strategy = "eager"
options.unhandled_prompt_behavior = "accept"
options.accept_insecure_certs = True
options.timeouts = {"script": 40_000}
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
driver = webdriver.Remote(address, options=options)
saw = {name: driver.capabilities[name] for name in [
    "browserName", "pageLoadStrategy", "unhandledPromptBehavior", "acceptInsecureCerts",
]}
saw["timeout"] = driver.timeouts.script
saw["session"] = driver.session_id
try:
    driver.get(pages + "/form")
    driver.find_element(By.ID, "name").send_keys("Ada")
    driver.find_element(By.ID, "press").click()
    WebDriverWait(driver, 60).until(lambda d: d.title == "Pressed")
    saw["title"] = driver.title
    saw["said"] = driver.find_element(By.ID, "said").text
    saw["seen"] = driver.execute_script("return window.seen")
    driver.execute_script("console.error('plain words'); setTimeout(() => { alert('?'); document.title = 'Answered' })")
    WebDriverWait(driver, 60).until(lambda d: d.title == "Answered")
    # A remote driver of Python has no method for the logs that those of other languages read.
    driver.command_executor.add_command("logs", "POST", "/session/$sessionId/se/log")
    logs = driver.execute("logs", {"type": "browser"})["value"]
    saw["console"] = [entry["level"] for entry in logs if "plain words" in entry["message"]]
    driver.add_cookie({"name": "plain", "value": "1"})
    saw["cookies"] = [cookie["name"] for cookie in driver.get_cookies()]
    try:
        driver.find_element(By.ID, "nothing")
    except NoSuchElementException as error:
        saw["missing"] = type(error).__name__
    first = driver.current_window_handle
    driver.switch_to.new_window("tab")
    saw["windows"] = len(driver.window_handles)
    driver.close()
    driver.switch_to.window(first)
    driver.get(pages + "/green")
    driver.get(pages + "/")
    driver.back()
    saw["back"] = driver.title
finally:
    driver.quit()
print(json.dumps(saw))
