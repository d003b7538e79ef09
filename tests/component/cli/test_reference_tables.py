"""`events`, `options` and `handlers`: what billhook knows, for people and for programs."""

from __future__ import annotations

import json

import pytest

from billhook.events import EVENT_TYPES
from billhook.settings import OPTIONS
from support.signing import SECRET


def test_options_prints_no_value_of_the_environment(run):
    result = run("options", SECRETS="a-very-secret-secret")

    assert result.exit_code == 0
    assert "a-very-secret" not in result.output


HANDLERS = """
from billhook import Handlers, signals
from billhook.events import InvoiceApproved

handlers = Handlers()

@handlers.on(InvoiceApproved, timeout_seconds=5, retry=[1, 2], aliases=("old",))
def approve(event): ...

def book(sender, *, event, delivery): ...

signals.invoice_approved.connect(book)
"""


def test_handlers_lists_decorated_and_plain_subscribers_and_needs_no_secret(run, tmp_path):
    (tmp_path / "listed_handlers.py").write_text(HANDLERS)

    listed = json.loads(run("handlers", "listed_handlers.py", "--json").stdout)

    assert {one["name"] for one in listed["handlers"]} == {"listed_handlers.approve", "listed_handlers.book"}
    assert len(listed["unhandled"]) == len(EVENT_TYPES)  # all but one, and the unknown ones
    assert "billhook.db" not in [path.name for path in tmp_path.iterdir()]


def test_handlers_leaves_out_columns_of_unused_options(run, tmp_path):
    (tmp_path / "plain_handlers.py").write_text(HANDLERS)

    heading = run("handlers", "plain_handlers.py").stdout.splitlines()[0]

    assert "ordered by" not in heading
    assert "identity" not in heading


def test_an_import_error_of_a_handlers_module_is_one_line(run, tmp_path):
    mistakes = {
        "x = 1": "has no Handlers",
        "import nowhere_at_all": "ModuleNotFoundError: No module named 'nowhere_at_all'",
        "def broken(:": "SyntaxError",
        "raise ValueError('my mistake')": "ValueError: my mistake",
        "raise SystemExit(0)": "SystemExit: 0",
    }

    for number, (text, told) in enumerate(mistakes.items()):
        name = f"bad_{number}.py"
        (tmp_path / name).write_text(text)

        result = run("handlers", name)

        assert result.exit_code == 2
        assert told in result.stderr
        assert name in result.stderr
        assert len(result.stderr.splitlines()) == 1


SUBSCRIBER = """
from billhook import signals

def book(sender, *, event, delivery): ...

signals.{name}.connect(book)
"""


def test_a_module_of_plain_subscribers_can_be_loaded_repeatedly(run, tmp_path):
    for name in ("invoice_approved", "unknown_event"):
        (tmp_path / f"of_{name}.py").write_text(SUBSCRIBER.format(name=name))

        for _ in range(2):
            listed = json.loads(run("handlers", f"of_{name}.py", "--json").stdout)
            assert [one["name"] for one in listed["handlers"]].count(f"of_{name}.book") == 1


def test_subscribers_of_another_module_do_not_excuse_one_without_any(run, tmp_path):
    (tmp_path / "plain_hooks.py").write_text(SUBSCRIBER.format(name="invoice_approved"))
    (tmp_path / "empty_hooks.py").touch()

    result = run("handlers", "plain_hooks.py", "empty_hooks.py")

    assert result.exit_code == 2
    assert "empty_hooks.py has no Handlers" in result.stderr


def test_options_on_a_narrow_terminal_break_no_name(run, monkeypatch):
    for columns in ("60", "80", "119"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = run("options").stdout.splitlines()
        heads = [line.split("  ")[0] for line in lines if not line.startswith(" ")]
        assert heads == [option.key for option in OPTIONS]
        assert all(len(line) <= max(int(columns), 75) for line in lines)
        assert all(
            option.default_text in line
            for option, line in zip(
                OPTIONS, (line for line in lines if not line.startswith(" ")), strict=True
            )
        )
    monkeypatch.setenv("COLUMNS", "120")
    assert all(option.key in run("options").stdout for option in OPTIONS[:3])


def test_require_all_accepts_plain_subscribers_of_every_type(run, tmp_path):
    lines = ["from billhook import signals", "def book(sender, *, event, delivery): ..."]
    connected = [f"signals.{model.signal_name}.connect(book)" for model in EVENT_TYPES.values()]
    (tmp_path / "plain_all.py").write_text("\n".join([*lines, *connected]))
    (tmp_path / "plain_less.py").write_text("\n".join([*lines, *connected[1:]]))

    less = run("handlers", "plain_less.py", "--require-all")
    whole = run("handlers", "plain_all.py", "--require-all")

    assert less.exit_code == 1
    assert less.stderr.startswith(f"Error: no handler for {next(iter(EVENT_TYPES))}: ")
    assert whole.exit_code == 0


def test_serve_and_worker_refuse_missing_handlers_with_the_same_text(run, tmp_path):
    (tmp_path / "few_handlers.py").write_text(HANDLERS)
    listed = run("handlers", "few_handlers.py", "--require-all")

    for command in ("serve", "worker"):
        refused = run(command, "few_handlers.py", "--require-all", SECRETS=SECRET)
        assert refused.exit_code == 1
        assert refused.stderr.splitlines()[-1] == listed.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ('@handlers.on(InvoiceApproved, ordered_by="customer_id")', "ordered_by names 'customer_id', which"),
        ("@handlers.on(PaymentFailed)", "it is called with PaymentFailed there; declare that"),
        ("@signals.handler_dead.connect", "has the signature (event: billhook"),
        ("@Billhook(handlers=InvoiceApproved)", "handlers is the class InvoiceApproved"),
        ('@Source("eu", scheme="hmac", secrets=[])', "scheme is a text"),
    ],
)
def test_a_mistake_in_a_module_of_handlers_is_told_with_its_line(run, tmp_path, wrong, told):
    (tmp_path / "mistaken.py").write_text(
        "from billhook import Billhook, Handlers, Source, signals\n"
        "from billhook.events import InvoiceApproved, PaymentFailed\n"
        "handlers = Handlers()\n\n"
        f"{wrong}\n"
        "def approve(event: InvoiceApproved): ...\n"
    )

    result = run("handlers", "mistaken.py")

    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.endswith(f"({tmp_path / 'mistaken.py'}, line 5)\n")
