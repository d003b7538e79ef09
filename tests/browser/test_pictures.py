"""The README's pictures: made from a running demo, in light and dark.

`BILLHOOK_WRITE_PICTURES=1 python -m pytest tests/browser/test_pictures.py` writes them to deploy/pictures.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from support.browser import WatchedPage
from support.postgres import STARTED_WITH
from support.processes import clean_environment

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "deploy" / "pictures"
SIZE = {"width": 1100, "height": 760}
MOST_BYTES = 120_000


@pytest.fixture(scope="module")
def addresses(tmp_path_factory) -> Iterator[dict[str, Any]]:
    """Where the pages of a demo are, and how to log in."""
    environ = clean_environment(TMPDIR=str(tmp_path_factory.mktemp("demo")))
    command = [sys.executable, "-m", "billhook", "demo", "--stay", "--json"]
    demo = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    printed = "".join(iter(demo.stdout.readline, "}\n")) + "}"
    yield json.loads(printed)["addresses"]
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=90)


def shown(browser, addresses, name, scheme) -> WatchedPage:
    """The first page of the dashboard or the sandbox."""
    there = addresses[name]
    origin = "/".join(there["url"].split("/")[:3])
    options: dict[str, Any] = {"viewport": SIZE, "color_scheme": scheme}
    login = there["login"]
    if name == "dashboard":
        options["http_credentials"] = {"username": login["user"], "password": login["password"]}
    watched = WatchedPage(browser, origin, **options)
    watched.page.goto(there["url"])
    if name == "sandbox":
        watched.page.get_by_label("Client id").fill(login["client id"])
        watched.page.get_by_label("API token").fill(login["API token"])
        watched.page.get_by_role("button", name="Log in").click()
    watched.page.get_by_role(
        "heading", name="Event types" if name == "dashboard" else "Clock"
    ).first.wait_for()
    return watched


@pytest.mark.slow
def test_the_pages_of_a_demo_look_like_the_readmes_pictures(browser, addresses, tmp_path):
    readme = (ROOT / "README.md").read_text()
    for name, scheme in product(("dashboard", "sandbox"), ("light", "dark")):
        watched = shown(browser, addresses, name, scheme)
        picture = tmp_path / f"{name}-{scheme}.png"

        watched.page.screenshot(path=picture)
        watched.context.close()

        if STARTED_WITH.get("BILLHOOK_WRITE_PICTURES") == "1":
            PICTURES.mkdir(exist_ok=True)
            (PICTURES / picture.name).write_bytes(picture.read_bytes())
        assert watched.complaints == []
        committed = (PICTURES / picture.name).read_bytes()
        assert size_of(committed) == size_of(picture.read_bytes()) == (SIZE["width"], SIZE["height"])
        assert len(committed) < MOST_BYTES
        assert f"deploy/pictures/{picture.name}" in readme


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height, from the header. Source: PNG specification, "IHDR"."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
