"""deploy/LAPTOP.md: its commands bring deliveries of one receiver to another, and record requests."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from billhook.events import InvoiceApproved, sample
from support.examples import Server, answers, environment, free_port
from support.pages import block, marked
from support.processes import until
from support.signing import SECRET
from support.terminal import terminal, typed

BLOCKS = {name: text for _, name, text in marked(["deploy/LAPTOP.md"])}
PATH = "/webhooks/billing"


def running(commands: str, folder: Path, **options: str) -> AbstractContextManager[Path]:
    """A program that runs until Ctrl-C; gives what it has said."""
    environ = {**environment(), **options}
    if "BILLHOOK_SECRETS_FILE" in commands:
        del environ["BILLHOOK_SECRETS"]
    return terminal(commands, folder, environ)


def at_port(name: str, port: int) -> str:
    assert "5000" in BLOCKS[name]
    return BLOCKS[name].replace("5000", str(port))


def say(command: str, folder: Path, **options: str) -> str:
    return typed(command, folder, {**environment(), **options})


@pytest.mark.slow
def test_deliveries_of_one_receiver_come_to_another_and_a_request_is_recorded(tmp_path: Path) -> None:
    for name in ("billing.py", "shop.py"):
        (tmp_path / name).write_text(block(f"file: {name}"))
    (tmp_path / "secret.txt").write_text(f"{SECRET}\n")
    (tmp_path / "secret.txt").chmod(0o600)
    here, there = free_port(), free_port()
    staging = {"BILLHOOK_INBOX_URL": f"sqlite:///{tmp_path}/staging.db"}
    service = Server(there, tmp_path, PATH)

    with (
        running(at_port("laptop-serve", here), tmp_path) as laptop,
        running(f"flask --app shop run --port {there}", tmp_path, **staging),
    ):
        until(lambda: answers(here) and answers(there), 15)
        stored = service.deliver(sample(InvoiceApproved, invoice_id="inv_stored"))
        assert stored == (200, {"status": "accepted"})

        stored, follow = at_port("laptop-forward", here).strip().splitlines()
        assert "1 of 1 delivery sent, 1 accepted" in say(stored, tmp_path, **staging)
        until(lambda: "invoice inv_stored approved" in laptop.read_text(), 15)
        with running(follow, tmp_path, **staging) as followed:
            until(lambda: "sending new deliveries" in followed.read_text(), 15)
            service.deliver(sample(InvoiceApproved, invoice_id="inv_new"))
            until(lambda: "invoice inv_new approved" in laptop.read_text(), 15)
        assert laptop.read_text().count("inv_stored") == 1

        # As through a tunnel: an app that has the service's secret is sent to at a public address.
        send, subscribe = BLOCKS["laptop-tunnel"].strip().splitlines()
        public = f"https://laptop.example.com{PATH}"
        assert '200 {"status": "accepted"}' in say(
            send.replace(public, f"http://127.0.0.1:{there}{PATH}"), tmp_path
        )
        assert "InvoiceApproved" in say(f"{subscribe} --dry-run", tmp_path)
        assert send.count(public) == subscribe.count(public) == 1


@pytest.mark.slow
def test_a_recorded_request_shows_how_it_is_signed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(f"{SECRET}\n")
    port = free_port()
    capture, find = at_port("laptop-capture", port).strip().splitlines()

    with running(capture, tmp_path) as log:
        until(lambda: answers(port), 15)
        say(f"billhook send InvoiceApproved --to http://127.0.0.1:{port}{PATH}", tmp_path)
        until(lambda: list((tmp_path / "captured").iterdir()), 15)
        found = say(find, tmp_path)

    assert "standard-webhooks" in found, log.read_text()


def test_every_block_of_the_page_is_played() -> None:
    assert BLOCKS.keys() == {f"laptop-{name}" for name in ("serve", "forward", "tunnel", "capture")}
