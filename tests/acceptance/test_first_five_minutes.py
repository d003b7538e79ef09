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
from support.terminal import terminal
from support.timeouts import scaled

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
MOST_SECONDS = 300
BLOCKS = {f"{kind}: {name}": text for kind, name, text in marked()}
SECRET = re.search(r"```console\n(test -f secret.txt .*?)```", README, re.DOTALL)[1]
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
    own = ("BILLHOOK", "FLASK", "PYTHON", "VIRTUAL_ENV")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(own)}
    environment["PATH"] = os.pathsep.join(
        each for each in environment["PATH"].split(os.pathsep) if not (Path(each) / "activate").exists()
    )
    moments = [("begins", time.monotonic())]

    with (
        terminal("terminal 1", folder, environment) as first,
        terminal("terminal 2", folder, environment) as second,
    ):
        first.type(BLOCKS["command: install"], seconds=scaled(600))
        save(folder, "billing.py")
        first.type(SECRET)
        first.type(BLOCKS["command: serve"], until=LISTENS, seconds=scaled(30))
        second.type(". .venv/bin/activate\n" + SECRET)  # "same folder and variable"
        send, listing = BLOCKS["command: send"].strip().splitlines()
        sent = second.type(send, seconds=scaled(30))
        handled = first.wait_for(r"invoice inv_42 approved at \d\d:\d\d, delivery msg_\w+", scaled(30))
        listed = second.type(listing, seconds=scaled(30))
        moments.append(("the first handled delivery", time.monotonic()))

        save(folder, "test_handlers.py")
        tested = second.type(BLOCKS["command: pytest"], seconds=scaled(600))
        moments.append(("the first green test", time.monotonic()))

        first.interrupt()
        first.type(BLOCKS["command: dashboard"])
        first.type(BLOCKS["command: serve"], until=LISTENS, seconds=scaled(30))
        dashboard = page("/billhook/deliveries/1", (folder / "dashboard.txt").read_text().strip())
        moments.append(("the dashboard", time.monotonic()))
        first.interrupt()

    began = moments[0][1]
    told = [f"--- {one.name}\n{one.shown}" for one in (first, second)]
    told += [f"{at - began:6.1f} s to {what}" for what, at in moments[1:]]
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *told, ""]))
    assert '200 {"status": "accepted"}' in sent
    key = re.search(r"delivery (msg_\w+)", handled)[1]
    # In 80 columns the key is cut, and columns are left out.
    assert re.search(rf"InvoiceApproved +done +inv_42 +{key[:7]}", listed)
    assert "9 passed" in tested
    assert "InvoiceApproved" in dashboard
    assert key in dashboard
    assert moments[-1][1] - began < scaled(MOST_SECONDS)
