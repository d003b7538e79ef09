"""`billhook demo` as a user runs it: it works anywhere, leaves nothing, and can fail."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx2
import pytest
from click.testing import CliRunner

from billhook.cli import main
from billhook.cli.demo import DemoEnvironment
from billhook.errors.program import install_command
from support.processes import clean_environment, run_command, until
from support.timeouts import scaled

DEMO = [sys.executable, "-m", "billhook", "demo"]


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Iterator[Path]:
    """Where the demo puts its folder, of which and of its processes nothing is left afterwards."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    assert of_this_demo(folder) == []


@pytest.fixture
def hidden(tmp_path) -> Path:
    """A folder that hides a package of the sandbox's."""
    folder = tmp_path / "hidden"
    folder.mkdir()
    (folder / "limits.py").write_text("raise ModuleNotFoundError('not installed', name='limits')")
    return folder


def environment(temporary: Path, **more: str) -> dict[str, str]:
    return clean_environment(TMPDIR=str(temporary), **more)


def of_this_demo(temporary: Path) -> list[str]:
    """Processes that work in the demo's folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(temporary) in str((entry / "cwd").readlink()):
                found.append(entry.name)
    return found


def test_demo_handles_every_delivery_and_leaves_nothing(temporary, tmp_path):
    hostile = {
        "BILLHOOK_ENGINE": "inline",  # settings of the user's own must not disturb it
        "BILLHOOK_NONSENSE": "1",
        "WEB_CONCURRENCY": "7",
        "http_proxy": "http://127.0.0.1:1",
    }

    started = time.monotonic()
    done = run_command([*DEMO, "--json"], cwd=tmp_path, env=environment(temporary, **hostile))

    assert done.returncode == 0, done.stdout + done.stderr
    run_demo = json.loads(done.stdout)
    assert run_demo["ok"] is True
    assert len(run_demo["rows"]) == 28
    assert time.monotonic() - started < scaled(40)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["temporary"]


@pytest.mark.slow
def test_demo_prints_its_steps_within_80_columns(temporary):
    lines = run_demo(temporary).stdout.splitlines()

    assert "- sent 24 usage events" in lines
    assert "- moved the clock by 40 days" in lines
    assert "- posted 5 bad deliveries" in lines
    assert re.fullmatch(r"28 of 28 as expected, in [\d.]+ s", lines[-2])
    assert lines[-1].startswith("Next: ")
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.slow
def test_demo_without_the_sandbox_extra_sends_samples(temporary, hidden):
    done = run_demo(temporary, PYTHONPATH=str(hidden))

    assert "28 of 28 as expected" in done.stdout
    assert "- signed a sample of each event type and posted it" in done.stdout
    assert install_command("sandbox") in done.stderr


def run_demo(temporary: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A demo that goes well."""
    done = run_command(DEMO, env=environment(temporary, **more))
    assert done.returncode == 0, done.stdout + done.stderr
    return done


SABOTAGED = """
from billhook import Handlers
from billhook.cli.demo_handlers import note as write

handlers = Handlers()

@handlers.on_any(name="sabotaged")
def work(event, delivery):
    if delivery.event_type == "PaymentFailed":
        return
    if delivery.event_type == "Overage":
        event = event.model_copy(update={"currency": "XXX"})
    if delivery.event_type == "PingTest":
        write(event, delivery)
    write(event, delivery)
"""


@pytest.mark.slow
def test_handlers_that_are_sabotaged_are_found_out(temporary, tmp_path, monkeypatch):
    handlers = tmp_path / "sabotaged_demo.py"
    handlers.write_text(SABOTAGED)
    monkeypatch.setattr("billhook.cli.demo.HANDLERS", str(handlers))

    result = CliRunner().invoke(main, ["demo", "--json"])

    assert result.exit_code == 1
    run_demo = json.loads(result.stdout)
    assert run_demo["ok"] is False
    assert {row["type"]: row["wrong"] for row in run_demo["rows"] if not row["ok"]} == {
        "PaymentFailed": ["handled 0 times, not 1"],
        "Overage": ["the handler got other values than were sent"],
        "PingTest": ["handled 2 times, not 1"],
    }
    assert "not every delivery had the expected result" in result.stderr
    assert "Booting worker" in result.stderr  # the end of the server's log


@pytest.mark.slow
def test_demo_prints_the_log_of_a_server_that_does_not_start(temporary, monkeypatch):
    monkeypatch.setattr("billhook.cli.demo.HANDLERS", "no_such_module_anywhere")

    result = CliRunner().invoke(main, ["demo"])

    assert result.exit_code == 1
    assert "exited unexpectedly; the end of its log" in result.stderr
    assert "no_such_module_anywhere" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_clears_everything_away(temporary, number):
    process = subprocess.Popen(
        DEMO, env=environment(temporary), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    until(lambda: len(of_this_demo(temporary)) >= 2, 30)

    process.send_signal(number)
    _, errors = process.communicate(timeout=90)

    assert process.returncode == 128 + number
    assert b"Traceback" not in errors


def test_a_signal_while_the_demo_starts_ends_it_though_an_import_swallows_exceptions(temporary, monkeypatch):
    def start(environment: DemoEnvironment) -> None:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(DemoEnvironment, "_start_servers", start)
    monkeypatch.setattr(DemoEnvironment, "_start_sandbox", lambda environment, stack: None)
    before = signal.getsignal(signal.SIGTERM)

    with pytest.raises(SystemExit) as caught, DemoEnvironment():
        pass

    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def read_json(stream: IO[str]) -> Any:
    """The first JSON object of a stream that goes on."""
    text = ""
    for line in stream:
        text += line
        if line == "}\n":
            return json.loads(text)
    raise AssertionError(text)


def send_form(client: httpx2.Client, page: str, action: str, **fields: str) -> httpx2.Response:
    """Send a form with the token of a page, as a browser does."""
    token = re.search(r'name="csrf_token" value="([^"]+)"', client.get(page).text)
    assert token
    headers = {"Origin": str(client.base_url).rstrip("/")}
    return client.post(action, data={"csrf_token": token[1], **fields}, headers=headers)


def facts_of(page: str) -> str:
    """The list of facts about a delivery."""
    return page[page.index("delivery id") :].partition("</dl>")[0]


@pytest.mark.slow
def test_a_demo_that_stays_has_an_event_of_the_sandboxs_page_arrive_in_the_dashboard(temporary):
    process = subprocess.Popen(
        [*DEMO, "--stay", "--json"], env=environment(temporary), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    found = read_json(process.stdout)
    addresses = found["addresses"]
    [notes] = temporary.glob("*/handled.jsonl")
    before = notes.read_text().count("PaymentFailed")
    sandbox = addresses["sandbox"]

    with httpx2.Client(base_url=sandbox["url"], follow_redirects=True) as client:
        once = sandbox["login"]["login address"]
        send_form(client, once, "/pages/login", token=once.partition("token=")[2])
        trigger = "/pages/call?operation=POST+/_sandbox/trigger/{eventType}&eventType=PaymentFailed"
        page = send_form(client, trigger, trigger, eventType="PaymentFailed")
        until(lambda: ">delivered<" in client.get(page.url).text, 30)
        until(lambda: notes.read_text().count("PaymentFailed") > before, 30)
        shown = client.get(page.url).text
        [delivery] = re.findall(r"dlv_[0-9a-f]+", facts_of(shown))
        dashboard = addresses["dashboard"]
        user = dashboard["login"]["user"], dashboard["login"]["password"]
        [link] = re.findall(rf'href="({dashboard["url"]}deliveries\?key={delivery})"', shown)
        listed = client.get(link, auth=user).text
        [number] = set(re.findall(r"/billhook/deliveries/(\d+)", listed))
        arrived = client.get(f"{dashboard['url']}deliveries/{number}", auth=user).text
        stranger = client.get(dashboard["url"]).status_code
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)

    assert found["ok"] is True
    assert delivery in arrived
    assert "PaymentFailed" in arrived
    assert stranger == 401
    assert addresses["receiver"]["url"] in shown
    assert "&#34;status&#34;: &#34;accepted&#34;" in shown
    assert process.returncode == 0


@pytest.mark.slow
def test_a_demo_that_stays_needs_the_sandbox(temporary, hidden):
    path = [str(hidden), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]

    done = run_command([*DEMO, "--stay"], env=environment(temporary, PYTHONPATH=os.pathsep.join(path)))

    assert done.returncode != 0
    assert install_command("sandbox") in done.stderr
    assert "Traceback" not in done.stderr
