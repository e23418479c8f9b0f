"""A headless Chromium that opens our pages, for their tests and for pictures of them.

It is Debian's `chromium` with its `chromium-driver`, driven by selenium (the extra `browser`).
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = "chromium", "chromedriver"
#: root needs the second one; a container has little shared memory; pictures alike everywhere
SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--force-device-scale-factor=1",
    "--hide-scrollbars", "--disable-extensions", "--disable-background-networking", "--lang=en",
)  # fmt: skip


def missing() -> str:
    """What there is no browser for want of; empty where there is one."""
    if importlib.util.find_spec("selenium") is None:
        return "selenium isn't installed"
    absent = [name for name in (CHROMIUM, DRIVER) if shutil.which(name) is None]
    return f"{' and '.join(absent)} isn't installed" if absent else ""


class Browser:
    """A window; what it takes from a page is text."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path) -> float:
        """Opens a page; seconds until it was loaded and its script had run."""
        self.driver.get(path.resolve().as_uri())
        timing = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
        return float(self.run(timing)) / 1000

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script's `return`."""
        return self.driver.execute_script(script, *arguments)

    def find(self, css: str) -> Any:
        """The first element."""
        return self.driver.find_element("css selector", css)

    def follow(self, css: str) -> None:
        """Clicks a link and waits for the page behind it."""
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.support.wait import WebDriverWait

        left = self.driver.current_url
        self.find(css).click()
        arrived = "return location.href !== arguments[0] && document.readyState === 'complete'"
        # A script that the change of pages cuts off fails: asked again.
        patient = WebDriverWait(self.driver, 30, ignored_exceptions=(WebDriverException,))
        patient.until(lambda _: self.run(arrived, left))

    def all(self, css: str) -> list[Any]:
        """Every element."""
        found: list[Any] = self.driver.find_elements("css selector", css)
        return found

    def text(self, css: str) -> str:
        """The text of the first element, shown or not."""
        return str(self.run("return document.querySelector(arguments[0]).textContent", css))

    def press(self, *keys: str) -> None:
        """Presses keys, by their names in selenium: ARROW_DOWN, HOME, …"""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        ActionChains(self.driver).send_keys(*(getattr(Keys, key) for key in keys)).perform()

    def complaints(self) -> list[str]:
        """What the console has said since it was last asked."""
        return [line["message"] for line in self.driver.get_log("browser")]

    def picture(self, path: Path, width: int, height: int) -> None:
        """Saves the window as a picture of this size in pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        # Two frames: one for the layout, one for what is drawn in answer to it.
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 200)));"
        )
        self.driver.save_screenshot(str(path))


@contextmanager
def browser(width: int = 1400, height: int = 900) -> Iterator[Browser]:
    """A browser that ends with the block."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = shutil.which(CHROMIUM) or CHROMIUM
    for switch in (*SWITCHES, f"--window-size={width},{height}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which(DRIVER)))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
