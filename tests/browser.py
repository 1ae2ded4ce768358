"""Chromium for the tests that look at pages."""
import shutil
import tempfile
from contextlib import contextmanager

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")


@contextmanager
def chromium(what, flags):
    "A browser without a window, with these flags; `what` is not tested where there is none."
    if not (CHROMIUM and DRIVER):
        pytest.skip(f"{what} not tested in a browser: chromium and chromedriver are not here")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory() as profile:
        for flag in [*flags, f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        yield driver
        driver.quit()
