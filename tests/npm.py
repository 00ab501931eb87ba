"""Packages for node, installed by name into a folder of their own; a test that needs them is skipped without node."""

import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentfs-tests"
INSTALL_SECONDS = 240
FAILED_FOR = 600.0  # seconds in which an installation that failed is not tried again, by any test of a suite


def packages(*names: str, seconds: int = INSTALL_SECONDS) -> Path:
    """Return a folder in which node finds these packages; skip the test, saying why, if they cannot be had."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node is not installed")
    folder = CACHE / "-".join(["npm", *sorted(names)])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(folder, names, seconds)
    return folder


def _install(folder: Path, names: tuple[str, ...], seconds: int) -> None:
    failed = folder / "failed"
    if failed.exists() and time.time() - failed.stat().st_mtime < FAILED_FOR:
        pytest.skip(failed.read_text())
    quick = [
        "--fetch-retries=1",
        "--fetch-retry-mintimeout=1000",
        "--fetch-retry-maxtimeout=2000",
    ]  # without a registry
    argv = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--no-save", *quick, *names]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
        why = f": {done.stderr.strip().partition(chr(10))[0]}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        why = f" in {seconds} s"
    if why:
        failed.write_text(f"the registry gave no {', '.join(names)}{why}")
        pytest.skip(failed.read_text())
    (folder / "complete").touch()


def node(folder: Path, script: str, given: Any) -> Any:
    """Run a module with these packages, a value on its standard input; return the value that it prints."""
    path = folder / f"script-{os.getpid()}.mjs"
    path.write_text(script, encoding="utf-8")
    try:
        done = subprocess.run(
            ["node", str(path)], input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        path.unlink()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
