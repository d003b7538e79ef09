"""A newcomer's first five minutes: the README word for word in a fresh folder, with the terminal recorded.

Prints what was shown, and how long it took to the first handled delivery, to the first green test and to the
dashboard: python -m pytest tests/acceptance/test_first_five_minutes.py --long.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from support.examples import answers
from support.pages import README, ROOT, marked
from support.processes import strangers_environment, until
from support.terminal import terminal, typed
from support.timeouts import scaled

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
MOST_SECONDS = 300
BLOCKS = {f"{kind}: {name}": text for kind, name, text in marked()}
SECRET = re.search(r"```console\n(test -f secret.txt .*?)```", README, re.DOTALL)[1]
ACTIVATED = f". .venv/bin/activate\n{SECRET}"
"""With \"same folder and variable\" in each terminal."""
LISTENS = "server listening on http://127.0.0.1:8000"


def page(path: str, user: str) -> str:
    credentials = base64.b64encode(user.encode()).decode()
    asked = urllib.request.Request(
        "http://127.0.0.1:8000" + path, headers={"Authorization": f"Basic {credentials}"}
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return answer.read().decode()


def save(folder: Path, name: str) -> None:
    (folder / name).write_text(BLOCKS[f"file: {name}"], encoding="utf-8")


def test_a_newcomer_gets_to_a_delivery_a_test_and_the_dashboard_in_five_minutes(tmp_path, capsys):
    if answers(8000):
        pytest.skip("the README's port 8000 is taken")
    folder = tmp_path / "billhook"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True, timeout=120)
    environment = strangers_environment()
    environment["PATH"] = os.pathsep.join(
        each for each in environment["PATH"].split(os.pathsep) if not (Path(each) / "activate").exists()
    )
    environment["COLUMNS"] = "80"
    moments, told = [("begins", time.monotonic())], []

    def say(commands: str, seconds: float, first: str = ACTIVATED) -> str:
        said = typed(first + commands, folder, environment, scaled(seconds))
        told.append(f"$ {commands}{said}")
        return said

    say(BLOCKS["command: install"], 600, "")
    save(folder, "billing.py")
    with terminal(ACTIVATED + BLOCKS["command: serve"], folder, environment) as log:
        until(lambda: LISTENS in log.read_text(), 30)
        send, listing = BLOCKS["command: send"].strip().splitlines()
        sent = say(send, 30)
        handled = r"invoice inv_42 approved at \d\d:\d\d, delivery (msg_\w+)"
        key = until(lambda: re.search(handled, log.read_text()), 30)[1]
        listed = say(listing, 30)
        moments.append(("the first handled delivery", time.monotonic()))

        save(folder, "test_handlers.py")
        tested = say(BLOCKS["command: pytest"], 600)
        moments.append(("the first green test", time.monotonic()))
    told.append(log.read_text())
    with terminal(
        ACTIVATED + BLOCKS["command: dashboard"] + BLOCKS["command: serve"], folder, environment
    ) as log:
        until(lambda: LISTENS in log.read_text(), 30)
        dashboard = page("/billhook/deliveries/1", (folder / "dashboard.txt").read_text().strip())
        moments.append(("the dashboard", time.monotonic()))

    began = moments[0][1]
    told += [f"{at - began:6.1f} s to {what}" for what, at in moments[1:]]
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *told, ""]))
    assert '200 {"status": "accepted"}' in sent
    # In 80 columns the key is cut, and columns are left out.
    assert re.search(rf"InvoiceApproved +done +inv_42 +{key[:7]}", listed)
    assert "9 passed" in tested
    assert "InvoiceApproved" in dashboard
    assert key in dashboard
    assert moments[-1][1] - began < scaled(MOST_SECONDS)
