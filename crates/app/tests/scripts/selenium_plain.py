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
driver = webdriver.Remote(address, options=options)
saw = {"browser": driver.capabilities["browserName"]}
try:
    driver.get(pages + "/form")
    driver.find_element(By.ID, "name").send_keys("Ada")
    driver.find_element(By.ID, "press").click()
    WebDriverWait(driver, 60).until(lambda d: d.title == "Pressed")
    saw["title"] = driver.title
    saw["said"] = driver.find_element(By.ID, "said").text
    saw["seen"] = driver.execute_script("return window.seen")
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
