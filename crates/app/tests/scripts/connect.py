"""connect.py ADDRESS PAGES_URL: a program of a Selenium Grid with uploads and downloads, which only got another address."""
import json
import os
import sys
import time
import warnings

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.file_detector import LocalFileDetector

address, pages = sys.argv[1:]
# The short form, which Selenium calls insecure: the password is in the address.
warnings.simplefilter("ignore")
options = webdriver.ChromeOptions()
options.add_argument("--headless=new")
options.add_argument("--disable-dev-shm-usage")
options.enable_downloads = True
options.enable_bidi = True
driver = webdriver.Remote(address, options=options)
saw = {"session": driver.capabilities["casement:sessionId"]}
try:
    driver.file_detector = LocalFileDetector()
    driver.get(pages + "/transfer")
    with open("local file.txt", "w") as file:
        file.write("from the client")
    driver.find_element(By.ID, "f").send_keys(os.path.abspath(file.name))
    read = "const done = arguments[0]; document.getElementById('f').files[0].text().then(done)"
    saw["uploaded"] = driver.execute_async_script(read)

    # A directory of this machine becomes that of the session.
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": os.path.abspath("downloads")})
    driver.find_element(By.ID, "a").click()
    deadline = time.monotonic() + 120
    while not driver.get_downloadable_files() and time.monotonic() < deadline:
        time.sleep(0.2)
    saw["names"] = driver.get_downloadable_files()
    driver.download_file(saw["names"][0], "downloads")
    with open("downloads/" + saw["names"][0]) as file:
        saw["downloaded"] = file.read()
    driver.delete_downloadable_files()
    saw["left"] = driver.get_downloadable_files()

    tree = driver.browsing_context.get_tree()
    saw["tree"] = [context.url for context in tree]
finally:
    driver.quit()
print(json.dumps(saw))
