"""What observers of lifecycle signals are called with, as the handlers page and `billhook.signals` say."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from billhook import Billhook, Handlers, signals
from billhook.events import CreditPoolIncreased, InvoiceApproved, PaymentFailed, sample
from support.apps import bare_app, deliver

NAMES = [name for name in signals.__all__ if name not in ("emit", "event_signal")]
PAGE = Path(__file__).parents[2] / "src" / "billhook" / "handlers" / "README.md"


def listed() -> dict[str, set[str]]:
    """Name to arguments, of the table on the page about handlers."""
    (table,) = re.findall(r"\| signal of `billhook.signals` .*\n((?:\|.*\n)+)", PAGE.read_text())
    lines = [line.strip("|\n").split("|") for line in table.splitlines()[1:]]
    return {re.findall("`(.+?)`", name)[0]: set(re.findall("`(.+?)`", those)) for name, those in lines}


def observed(folder) -> dict[str, set[str]]:
    """Name to arguments, of each signal as an app sends it."""
    handlers = Handlers()

    @handlers.on(InvoiceApproved, retry=[60])
    def fail_once(event):
        raise LookupError

    @handlers.on(PaymentFailed, retry=[], pause_after=1)
    def fail_for_good(event):
        raise LookupError

    @handlers.on(CreditPoolIncreased, identity=["customer_id"])
    def book(event):
        pass

    app, found = bare_app(folder, BILLHOOK_ENGINE="inline"), {}
    Billhook(app, handlers=[handlers])
    with ExitStack() as stack:
        stack.callback(app.extensions["billhook"].close)
        for name in NAMES:

            def note(sender, _name=name, **facts):
                assert found.setdefault(_name, set(facts)) == set(facts)

            stack.enter_context(getattr(signals, name).connected_to(note, app))
        for number, model in enumerate((InvoiceApproved, PaymentFailed, CreditPoolIncreased)):
            deliver(app, sample(model).to_json(), model.__name__, message_id=f"msg_{number}")
        deliver(app, sample(InvoiceApproved).to_json(), "InvoiceApproved", message_id="msg_0")  # a duplicate
        deliver(app, sample(PaymentFailed).to_json(), "PaymentFailed", message_id="msg_0")  # a conflict
        deliver(
            app, sample(CreditPoolIncreased).to_json(), "CreditPoolIncreased", message_id="msg_9"
        )  # a twin
        deliver(app, b"no JSON", "PaymentFailed", message_id="msg_10")  # set aside
        app.test_client().post("/webhooks/billing")  # rejected
    return found


def test_the_readme_lists_every_signal_with_what_observers_are_called_with(tmp_path):
    assert observed(tmp_path) == listed()
    assert set(listed()) == set(NAMES)


def test_the_signals_own_texts_name_the_same():
    for name, arguments in listed().items():
        told = re.split(r"[:.,\s]+", getattr(signals, name).__doc__)
        assert arguments <= set(told), name
