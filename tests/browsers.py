"""Chromium, driven as a person would: by what the page shows."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

SECONDS = 90.0  # as long as a test may take, but for what is needed to say what was seen
ROOM = 2_000_000_000  # bytes
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-software-rasterizer",
    "--window-size=1200,900",
)  # fmt: skip


@dataclass
class Browser:
    """One window, or several tabs of it."""

    driver: Chrome
    origin: str = ""

    def enter(self, url: str) -> "Browser":
        """Open the address that was printed."""
        self.origin = url.partition("/enter")[0]
        self.driver.get(url)
        self.until(lambda: self.driver.current_url == f"{self.origin}/", "the list of runs")
        return self

    def go(self, path: str) -> None:
        self.driver.get(f"{self.origin}{path}")

    def emulate(self, width: int = 0, scheme: str = "", zone: str | None = None) -> None:
        """Have pages shown on a screen of this width, in this colour scheme, or in this time zone."""
        if zone is not None:
            self.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
        if width:
            metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        if scheme:
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def forget(self) -> None:
        """Close all tabs but one, leave every page, and show none in another way."""
        for handle in self.driver.window_handles[1:]:
            self.driver.switch_to.window(handle)
            self.driver.close()
        self.driver.switch_to.window(self.driver.window_handles[0])
        self.driver.get("about:blank")
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.emulate(scheme="light", zone="")
        self.driver.delete_all_cookies()

    def tab(self, path: str) -> str:
        """Open a page in another tab, and return what it is called."""
        self.driver.switch_to.new_window("tab")
        self.go(path)
        return self.driver.current_window_handle

    def find(self, css: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css: str = "body") -> str:
        """Return what is seen of an element; nothing while it is not there."""
        try:
            return " ".join(" ".join(one.text for one in self.all(css)).split())
        except StaleElementReferenceException:
            return ""

    def sees(self, words: str, css: str = "body", seconds: float = SECONDS) -> None:
        self.until(lambda: words in self.text(css), f"{words!r} in {css}", seconds)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited {seconds:g} s for {what}; seen:\n{self.text()[:3000]}"
            time.sleep(0.02)

    def press(self, label: str, css: str = "button, a.button") -> None:
        """Click the button with this label."""
        self.until(lambda: self._pressed(label, css), f"the button {label!r}")

    def _pressed(self, label: str, css: str) -> bool:
        """Click it, if it is there; a page that has just been exchanged is looked at again."""
        try:
            found = [one for one in self.all(css) if one.text == label]
            if found:
                found[0].click()
        except StaleElementReferenceException:
            return False
        return bool(found)

    def tap(self, key: str) -> str:
        """Press a key wherever the focus is, and return what has it then."""
        ActionChains(self.driver).send_keys(key).perform()
        try:
            at = self.driver.switch_to.active_element
            return at.text or at.get_attribute("name") or at.tag_name
        except StaleElementReferenceException:  # the page has just been exchanged
            return ""

    def script(self, source: str, *values: Any) -> Any:
        return self.driver.execute_script(source, *values)

    def complaints(self) -> list[str]:
        """Return what the browser refused by a page's policy, and what went wrong in a script, since the last look."""
        try:
            entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        except WebDriverException:
            return []
        words = ("Content Security Policy", "Refused to", "Uncaught", "violat")
        return [entry["message"] for entry in entries if any(word in entry["message"] for word in words)]


def start(binary: str, driver: str, folder: Path) -> Browser:
    """Start Chromium with a profile of its own."""
    options = Options()
    room = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    elsewhere = () if room > ROOM else ("--disable-dev-shm-usage",)  # shared memory as files: a gigabyte is written
    for flag in (*FLAGS, *elsewhere, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return Browser(Chrome(options=options, service=Service(driver)))
