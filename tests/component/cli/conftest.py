"""What the tests of the commands share: a clean place to run them in, and an inbox with something in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blinker import ANY
from click.testing import CliRunner, Result

from billhook import Handlers
from billhook.cli import main
from billhook.client import BillingClient
from billhook.events import EVENT_TYPES, InvoiceApproved, PaymentFailed, UnknownEvent, sample
from billhook.events.base import _registered
from billhook.signals import event_signal
from support.apps import deliver, make_app
from support.billing_service import CLIENT_ID, REFRESH_TOKEN, Service, a_server, service_on
from support.inbox_view import place_of
from support.signing import APPROVED
from support.templates import new_inbox

Run = Callable[..., Result]


@pytest.fixture
def bare_url(request, tmp_path) -> str:
    """The URL of a place for an inbox: on SQLite alone, for component/inbox tests the SQL on both databases.

    A test of SQL that no other test executes asks for both: `parametrize("bare_url", BOTH, indirect=True)`.
    """
    if getattr(request, "param", "sqlite") == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return url
    path = tmp_path / "billhook.db"
    path.touch(0o600)
    return f"sqlite:///{path}"


@pytest.fixture(autouse=True)
def forgotten(tmp_path, monkeypatch) -> Iterator[None]:
    """What a test wrote as a module is gone with the test: its name, its event types, its subscribers."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    written = [
        name
        for name, module in list(sys.modules.items())
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path))
    ]
    for name in [*(model.signal_name for model in EVENT_TYPES.values()), UnknownEvent.signal_name]:
        signal = event_signal(name)
        for receiver in list(signal.receivers_for(ANY)):
            if receiver.__module__ in written:
                signal.disconnect(receiver)
    for name, model in list(_registered.items()):
        if model.__module__ in written:
            del _registered[name]
    for name in written:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def calls_are_repeated_at_once(monkeypatch) -> None:
    """Commands do not wait before they repeat a call to the service: component/client tests how long."""
    monkeypatch.setitem(BillingClient.__init__.__kwdefaults__, "sleep", lambda _: None)


@pytest.fixture
def run(request, tmp_path, monkeypatch, no_options) -> Run:
    """Runs `billhook …` in an empty folder; keyword arguments are BILLHOOK_ options.

    In a test that uses `inbox_url`, as `shop` does, on that inbox.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    if "inbox_url" in request.fixturenames:
        monkeypatch.setenv("BILLHOOK_INBOX_URL", request.getfixturevalue("inbox_url"))

    def invoke(*arguments: str, stdin: str | bytes | None = None, **options: str) -> Result:
        with monkeypatch.context() as patch:
            for name, text in options.items():
                patch.setenv(f"BILLHOOK_{name}", text)
            return CliRunner().invoke(main, list(arguments), input=stdin)

    return invoke


class Shop:
    """An app in the test's folder whose `send` fails until it is mended; `calls` is what ran."""

    def __init__(self, folder: Path, inbox_url: str) -> None:
        self.calls: list[str] = []
        self.broken = True
        handlers = Handlers()

        @handlers.on(InvoiceApproved, name="send", retry=[])
        def send(event: InvoiceApproved) -> None:
            self.calls.append("send")
            if self.broken:
                raise RuntimeError("no \x1b[31mmail")

        @handlers.on(InvoiceApproved, PaymentFailed, name="book")
        def book(event: InvoiceApproved | PaymentFailed) -> None:
            self.calls.append("book")

        self.app = make_app(
            folder, BILLHOOK_ENGINE="inline", BILLHOOK_INBOX_URL=inbox_url, handlers=[handlers]
        )
        self.app_state = self.app.extensions["billhook"]

    def fill(self) -> None:
        """1: done; 2: dead by `send`; 3: quarantined; 4: nobody handles it."""
        deliver(self.app, sample(PaymentFailed).to_json(), "PaymentFailed", message_id="m1")
        deliver(self.app, APPROVED, "InvoiceApproved", message_id="m2")
        deliver(
            self.app, b'{"\x1b]0;title\x07 \xff', "PingTest", message_id="m3", headers={"X-Odd": "\x9b31m"}
        )
        deliver(self.app, b"{}", "PingTest", message_id="m4")

    def handle(self) -> list[str]:
        """Handle what is due; returns the handlers that ran."""
        self.calls.clear()
        self.app_state.handle_due()
        return sorted(self.calls)


@pytest.fixture(scope="module")
def filled_file(tmp_path_factory) -> bytes:
    """The file of an inbox that a shop has filled: to copy it takes less time than to fill another."""
    folder = tmp_path_factory.mktemp("filled")
    made = Shop(folder, new_inbox(f"sqlite:///{folder / 'billhook.db'}"))
    made.fill()
    made.app_state.close()
    assert not (folder / "billhook.db-wal").exists()  # all of it is in the file
    return (folder / "billhook.db").read_bytes()


@pytest.fixture
def shop(tmp_path, inbox_url, filled_file) -> Iterator[Shop]:
    place = place_of(inbox_url)
    if isinstance(place, Path):
        place.write_bytes(filled_file)
    made = Shop(tmp_path, inbox_url)
    if not isinstance(place, Path):
        made.fill()
    yield made
    made.app_state.close()
    vars(made).clear()  # its handlers refer to it, and signals to them: the app would stay in memory


@pytest.fixture(scope="module")
def http() -> Iterator[Any]:
    with a_server() as running:
        yield running


@pytest.fixture
def service(http) -> Service:
    """The service's API, as a test has it answer."""
    return service_on(http)


@pytest.fixture
def credentials(service) -> dict[str, str]:
    """The options with which `run` calls the service."""
    return {"API_URL": service.url, "API_CLIENT_ID": CLIENT_ID, "API_REFRESH_TOKEN": REFRESH_TOKEN}


@pytest.fixture
def secret_file(tmp_path) -> Any:
    def write(secret: str) -> str:
        path = tmp_path / "secret.txt"
        path.touch(mode=0o600)
        path.write_text(secret + "\n")
        return str(path)

    return write
