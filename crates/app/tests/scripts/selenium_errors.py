"""selenium_errors.py ADDRESS: the classes of the exceptions that Selenium raises for errors of the server's own."""
import json
import sys
import warnings

from selenium import webdriver
from selenium.common.exceptions import WebDriverException

address = sys.argv[1]
# The short form, which Selenium calls insecure: the password is in the address.
warnings.simplefilter("ignore")


def raised(call):
    try:
        call()
    except WebDriverException as error:
        return [type(error).__name__, error.msg.split("\n")[0]]
    return "nothing"


def options(**capabilities):
    made = webdriver.ChromeOptions()
    made.add_argument("--headless=new")
    for name, value in capabilities.items():
        made.set_capability(name.replace("_", ":"), value)
    return made


saw = {
    "a capability": raised(lambda: webdriver.Remote(address, options=options(foo_bar=1)))[0],
    "a pool": raised(lambda: webdriver.Remote(address, options=options(casement_options={"pool": "none-such"})))[0],
}
driver = webdriver.Remote(address, options=options())
driver.quit()
saw["after the end"] = raised(lambda: driver.title)[0]
print(json.dumps(saw))
