"""`billhook sandbox`: a process of its own, that the client can speak to."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from billhook.client import BillingClient
from billhook.resources import NewCatalogProduct
from support.examples import free_port
from support.processes import clean_environment, run_command
from support.server import ask


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "billhook", "sandbox", *arguments]


def start(folder: Path, *arguments: str, errors: int | None = None, **environ: str) -> subprocess.Popen[str]:
    """A sandbox in a session of its own, at an address of its own."""
    return subprocess.Popen(
        command("--bind", f"127.0.0.1:{free_port()}", *arguments),
        cwd=folder,
        env=clean_environment(PYTHONUNBUFFERED="1", **environ),
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
    )


def told(process: subprocess.Popen[str], last: str) -> str:
    """What a process says until a line begins like this."""
    assert process.stdout is not None
    said, line = "", ""
    while not line.startswith(last):
        line = process.stdout.readline()
        assert line, f"the sandbox ended with {process.wait()}: {said}"
        said += line
    return said


@contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends in order when the block does."""
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        assert process.returncode == 0


@contextmanager
def sandbox(folder: Path, *arguments: str) -> Iterator[dict[str, Any]]:
    """The facts that a running `billhook sandbox --json` tells."""
    with stopped(start(folder, "--json", *arguments)) as process:
        yield json.loads(told(process, "}"))


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A running sandbox for tests that change nothing there."""
    with sandbox(tmp_path_factory.mktemp("standing"), "--database", "temporary") as facts:
        yield facts


def refused(folder: Path, *arguments: str) -> str:
    """What is said to a command that cannot work."""
    done = run_command(command(*arguments), cwd=folder, env=clean_environment())
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_client_works_with_the_printed_credentials(tmp_path: Path) -> None:
    with sandbox(tmp_path) as facts:
        client = BillingClient(facts["url"], facts["client_id"], facts["api_token"])

        made = client.catalog_products.create(NewCatalogProduct(name="API calls"))

        assert [one.id for one in client.catalog_products.list()] == [made.id]
        client.close()


def test_the_printed_address_logs_a_browser_in_once(standing: dict[str, Any]) -> None:
    address, url = standing["login_url"], standing["url"]
    with httpx2.Client(base_url=url, headers={"Origin": url}) as browser:
        form = browser.get(address).text
        fields = dict(re.findall(r'name="(csrf_token|token)" value="([^"]+)"', form))
        pressed = browser.post("/pages/login", data=fields)
        page = browser.get("/pages/")
        again = browser.post("/pages/login", data=fields)

    assert (pressed.status_code, pressed.headers["location"]) == (303, "/pages/")
    assert "This sandbox is empty" in page.text
    assert again.status_code == 401


@pytest.mark.slow
def test_a_token_that_could_not_be_printed_is_printed_at_the_next_start(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("--bind", f"127.0.0.1:{free_port()}"),
            cwd=tmp_path, env=clean_environment(), stdout=full, stderr=subprocess.PIPE, timeout=240,
        )  # fmt: skip

    assert done.returncode != 0
    with sandbox(tmp_path) as again, BillingClient(again["url"], "sandbox", again["api_token"]) as client:
        assert list(client.catalog_products.list()) == []


SLOW = """
import time
from billhook.cli import main
from billhook import sandbox

class Slow(sandbox.Sandbox):
    def __init__(self, options):
        print("now", flush=True)
        time.sleep(1)
        super().__init__(options)

sandbox.Sandbox = Slow
main(prog_name="billhook")
"""


@pytest.mark.slow
def test_ctrl_c_during_start_prints_no_traceback(tmp_path: Path) -> None:
    arguments = ["sandbox", "--bind", f"127.0.0.1:{free_port()}", "--database", "temporary"]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments],
        cwd=tmp_path, env=clean_environment(), start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        while process.stdout.readline() != b"now\n":
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        noise = process.stderr.read()

    assert noise == b""
    assert process.returncode == 0


@pytest.mark.slow
def test_the_sandbox_stops_when_its_terminal_is_closed(tmp_path: Path) -> None:
    process = start(tmp_path, "--json", errors=subprocess.PIPE)
    told(process, "}")

    process.send_signal(signal.SIGHUP)
    _, said = process.communicate(timeout=60)

    assert (process.returncode, said) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@pytest.mark.slow
def test_a_request_that_waits_is_given_up_at_the_end_and_nothing_is_left(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    options = ["--json", "--database", "temporary", "--allow-private"]
    process = start(
        tmp_path,
        *options,
        errors=subprocess.PIPE,
        TMPDIR=str(temporary),
        # A connection that is given up as it begins leaves a coroutine of the HTTP library behind.
        PYTHONWARNINGS="ignore::RuntimeWarning",
    )
    facts = json.loads(told(process, "}"))
    headers = {"x-api-key": facts["client_id"], "Content-Type": "application/json"}
    with (
        closing(HTTPConnection(facts["url"].removeprefix("http://"), timeout=120)) as connection,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        connection.request("POST", "/login", json.dumps({"refreshToken": facts["api_token"]}), headers)
        headers["Authorization"] = f"Bearer {json.load(connection.getresponse())['accessToken']}"
        hook = {"callbackUrl": f"http://127.0.0.1:{silent.getsockname()[1]}/", "eventType": "PingTest"}
        for path, body in (("/webhook", hook), ("/_sandbox/trigger/PingTest", {})):
            connection.request("POST", path, json.dumps(body), headers)
            assert connection.getresponse().read()
        with silent.accept()[0]:  # and there is no answer
            connection.request("POST", "/_sandbox/flush", '{"timeoutSeconds": 60}', headers)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)

    assert (process.returncode, said) == (0, "")
    assert list(temporary.iterdir()) == []


def printed(folder: Path, *arguments: str, **environ: str) -> str:
    """What `billhook sandbox` says for people, until it waits for requests."""
    with stopped(start(folder, "--database", "temporary", *arguments, **environ)) as process:
        return told(process, "  export BILLHOOK_SECRETS")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signature", "word"),
    [
        ("standard-webhooks", "signing secret"),
        ("timestamped-hmac", "signing secret"),
        ("timestamped-rsa", "public key"),
        ("body-hmac", "signing secret"),
    ],
)
def test_the_lines_that_are_printed_make_a_receiver_in_each_preset(
    tmp_path: Path, signature: str, word: str
) -> None:
    said = printed(tmp_path, "--client-id", "my$shop's", BILLHOOK_SIGNATURE=signature)

    lines = said[said.index("To call it") :].split("\n", 1)[1].replace("To receive from it:\n", "")
    report = (
        "import os; from billhook.extension import configured_scheme\n"
        "from billhook.settings import Settings, from_environ, read_secrets_file as read\n"
        "s = Settings.from_mapping(from_environ(os.environ))\n"
        "secrets = read(s.secrets_file) if s.secrets_file else s.secrets\n"
        "print(s.signature, len(configured_scheme(s).load(secrets)), os.environ['BILLHOOK_API_CLIENT_ID'])"
    )
    done = run_command(
        ["sh", "-ec", f'{lines}\nexec "$0" -c "$1"', sys.executable, report],
        cwd=tmp_path,
        env=clean_environment(),
    )
    assert done.stdout.strip() == f"{signature} 1 my$shop's", done
    assert [each for each in ("signing secret", "public key") if f"  {each}" in said] == [word]
    assert "PRIVATE" not in said


PREFIX = "BILLHOOK_SIGNATURE_PREFIX"
PRIVATE = "whsk_" + base64.b64encode(b"\x07" * 32).decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "environ", "line"),
    [
        ([], {"BILLHOOK_SIGNATURE": "body-hmac", PREFIX: ""}, f"  export {PREFIX}=''\n"),
        (["--secret-file", "secret"], {}, "  export BILLHOOK_SECRETS=whpk_"),
    ],
    ids=["a prefix that was chosen, though it be none", "the public half of a configured private key"],
)
def test_what_a_receiver_needs_of_the_options_is_printed(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], line: str
) -> None:
    (tmp_path / "secret").write_text(PRIVATE)
    said = printed(tmp_path, *arguments, **environ)
    assert line in said
    assert PRIVATE not in said


@pytest.mark.slow
def test_a_malformed_request_is_400_and_logs_no_token(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with sandbox(tmp_path) as facts:
        port = urlsplit(facts["url"]).port
        status = ask(port, b"GET / HTTP/1.1\r\nAuthorization Bearer tell-nobody\r\n\r\n").status

    assert status in (302, 400)
    logged = capfd.readouterr().err
    assert "Traceback" not in logged
    assert "tell-nobody" not in logged


@pytest.mark.slow
def test_a_secret_from_a_file_is_neither_printed_nor_stored(tmp_path: Path) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    (tmp_path / "secret").write_text(secret)

    with sandbox(tmp_path, "--secret-file", "secret") as facts:
        pass

    assert facts["signing_secret"] is None
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("billhook-sandbox.db*"))
    assert secret.encode() not in kept
    assert facts["api_token"].encode() not in kept  # only its digest is


@pytest.mark.slow
def test_a_taken_port_is_reported_before_the_database_is_created(
    tmp_path: Path, standing: dict[str, Any]
) -> None:
    bind = re.sub("^http://", "", standing["url"])

    assert f"{bind} is in use" in refused(tmp_path, "--bind", bind)
    assert "database URL cannot be read" in refused(tmp_path, "--bind", bind, "--database", "nonsense")
    assert not (tmp_path / "billhook-sandbox.db").exists()


def asked(facts: dict[str, Any], *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """`billhook sandbox call` with the credentials that were printed."""
    credentials = {"URL": "url", "CLIENT_ID": "client_id", "REFRESH_TOKEN": "api_token"}
    environ = clean_environment(**{f"BILLHOOK_API_{name}": facts[key] for name, key in credentials.items()})
    return run_command(command("call", *arguments), env=environ, **more)


@pytest.mark.slow
def test_a_seeded_sandbox_raises_events_when_its_clock_moves_and_is_not_seeded_again(tmp_path: Path) -> None:
    def customers(facts: dict[str, Any]) -> Any:
        return json.loads(asked(facts, "GET", "/_sandbox/customers?limit=1000").stdout)["customers"]

    with sandbox(tmp_path, "--seed", "demo") as facts:
        planted = customers(facts)
        moved = asked(facts, "POST", "/_sandbox/clock", '{"advance": "P40D"}')
        raised = asked(facts, "GET", "/_sandbox/raised?limit=1000")
        given = asked(facts, "POST", "/catalogProducts", "-", input='{"name": "Nine", "productCode": "9"}')
    with sandbox(tmp_path, "--seed", "demo", "--new-token") as facts:
        found = customers(facts)

    assert moved.returncode == 0, moved.stderr
    types = {one["eventType"] for one in json.loads(raised.stdout)["raised"]}
    assert {"InvoiceApproved", "UpcomingRenewal", "TierCrossed", "MonthEndReport"} <= types
    assert json.loads(given.stdout)["catalogProduct"]["name"] == "Nine"
    assert len(planted) == 4
    assert [one["id"] for one in found] == [one["id"] for one in planted]
