"""A real Chromium for the tests of this folder; without one they are skipped, and say so."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browsers import Browser, start
from tests.workspaces import Place


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for the tests of a module: it takes seconds to start."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium with its driver here: apt install chromium chromium-driver")
    browser = start(binary, driver, tmp_path_factory.mktemp("chromium"))
    try:
        yield browser
    finally:
        browser.driver.quit()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser, for one test: what it refuses to load or run by its policy is a failure."""
    chromium.complaints()
    yield chromium
    assert chromium.complaints() == []
    chromium.forget()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.env |= {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
    return place
