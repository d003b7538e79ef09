"""What the commands print is safe, and the frame around them turns mistakes into words."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from flask.cli import ScriptInfo

from billhook.cli import flask_group, main
from billhook.cli.output import BillhookGroup, UsageConfigError, print_table, printable, progress
from billhook.cli.params import check_bindable
from billhook.errors import InboxUnavailable, WeakSecret
from support.apps import make_app
from support.commands import commands
from support.signing import SECRET


def test_invisible_characters_are_escaped():
    shown = {
        "plain é 漢 😀": "plain é 漢 😀",
        "\x1b[31m": "\\x1b[31m",
        "\x9b31m": "\\x9b31m",
        "a\r\nb\tc\x00": "a\\r\\nb\\tc\\x00",
        "abc\u202ecba": "abc\\u202ecba",
        "\ud800 \u2028 \ufeff \x7f": "\\ud800 \\u2028 \\ufeff \\x7f",
        42: "42",
    }

    assert {text: printable(text) for text in shown} == shown


def test_markup_in_a_table_is_text(capsys):
    print_table(("name",), [("[red]no markup[/red] :smile:",)])

    assert "[red]no markup[/red] :smile:" in capsys.readouterr().out


def test_a_table_that_is_piped_cuts_nothing(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)

    print_table(("key", "other"), [("k" * 300, "x" * 100)])

    assert capsys.readouterr().out.count("k") == 300 + 1  # and the heading's


def test_progress_without_a_terminal_prints_nothing(capsys):
    with progress("working", 3) as steps:
        steps(2)

    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "code"), [(WeakSecret(3, 16), 2), (InboxUnavailable("the disk is full"), 1)]
)
def test_an_exception_of_billhooks_is_one_line_and_an_exit_code(error, code):
    @click.group(cls=BillhookGroup)
    def group() -> None: ...

    @group.command()
    def fail() -> None:
        raise error

    result = CliRunner().invoke(group, ["fail"])

    assert result.exit_code == code
    assert result.stderr == f"Error: {error}\n"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_an_output_that_is_full_is_one_line_and_an_exit_code():
    for json in ([], ["--json"]):
        command = [sys.executable, "-m", "billhook", "options", *json]
        with Path("/dev/full").open("w") as full:
            result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

        assert result.returncode == 1
        assert result.stderr == "Error: cannot write: No space left on device\n"


def test_another_failure_of_the_system_is_not_taken_for_a_full_disk():
    @click.group(cls=BillhookGroup)
    def group() -> None: ...

    @group.command()
    def fail() -> None:
        raise PermissionError(13, "Permission denied")

    assert isinstance(CliRunner().invoke(group, ["fail"]).exception, PermissionError)


# --- inside a user's Flask app ----------------------------------------------------------------------


def test_flask_is_given_the_group():
    from importlib.metadata import entry_points

    (entry,) = entry_points(group="flask.commands", name="billhook")

    assert entry.load() is flask_group


def test_an_app_without_billhook_is_reported(plain_app, run):
    result = CliRunner().invoke(flask_group, ["deliveries", "list"], obj=ScriptInfo(create_app=plain_app))

    assert result.exit_code == 2
    assert "this Flask app has no billhook: call Billhook(...).init_app(app)" in result.stderr


def test_a_configuration_error_of_the_users_app_exits_with_code_2(tmp_path, run):
    app = ScriptInfo(create_app=lambda: make_app(tmp_path, BILLHOOK_SECRETS=[]))
    result = CliRunner().invoke(flask_group, ["deliveries", "list"], obj=app)

    assert result.exit_code == 2
    assert "has no secret" in result.stderr


# --- what serve checks before it starts anything -----------------------------------------------------


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def free() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_serve_on_a_taken_port_starts_nothing(run, taken, monkeypatch):
    monkeypatch.setattr("billhook.cli.serve.spawn", lambda *_, **__: pytest.fail("started"))

    result = run("serve", "--bind", taken, SECRETS=SECRET)

    assert result.exit_code == 2
    assert result.stderr == (
        f"Error: {taken} is in use: stop the process that listens there, or give another --bind HOST:PORT\n"
    )
    assert result.stdout == ""


@pytest.mark.parametrize("command", [["sandbox"], ["serve"], ["capture", "--to", "x"]])
def test_the_options_of_other_servers_name_ours(run, command):
    for option in ("--port", "--host"):
        result = run(*command, option, "8080")

        assert result.exit_code == 2
        assert f"No such option '{option}'. Did you mean '--bind'?" in result.output
    assert "--bind" not in run("options", "--port", "8080").output


def test_an_unusable_bind_address_is_refused():
    no_hosts = ("203.0.113.9:8123", "no-such-host.invalid:8123", "a..b:8123")
    for bind in (*no_hosts, "unix:missing/socket", "fd://987"):
        with pytest.raises(UsageConfigError, match="cannot listen on") as caught:
            check_bindable(bind)
        assert caught.value.exit_code == 2


def test_a_bind_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "notes").touch()

    with pytest.raises(UsageConfigError, match="a file with this name exists"):
        check_bindable(f"unix:{tmp_path / 'notes'}")


def test_a_free_address_is_free_and_stays_so(free, tmp_path):
    for _ in range(2):
        check_bindable(free)
        check_bindable(f"unix:{tmp_path / 'socket'}")


@pytest.mark.parametrize("worker_class", ["asgi", "gthread"])
def test_serve_warns_of_an_address_that_other_machines_can_reach(run, monkeypatch, worker_class):
    monkeypatch.setattr("billhook.supervising.processes.Supervisor.run", lambda self: 0)
    run("serve", "--help")  # imports it
    monkeypatch.setattr("billhook.cli.serve.check_bindable", lambda bind: None)
    open_ones = ["0.0.0.0:80", "[::]:80", ":80", "192.0.2.7:80", "hooks.example:80"]
    local = ["127.0.0.9:80", "[::1]:80", "localhost:80", "unix:socket", "fd://3"]

    for bind in (*open_ones, *local):
        flags = ["--bind", bind, "--workers", "3", "--threads", "5", "--worker-class", worker_class]
        result = run("serve", *flags, SECRETS=SECRET)

        warning = f"Other machines can reach {bind}: put a proxy such as nginx in front (see deploy/)."
        blocked = "15 clients that send their headers slowly block the server"
        assert result.exit_code == 0, result.output
        assert (warning in result.stdout) is (bind in open_ones)
        assert (blocked in result.stdout) is (bind in open_ones and worker_class == "gthread")
        assert ("Other machines" in result.stdout) is (bind in open_ones)


def test_a_prefix_without_its_slash_is_announced_and_served_with_it(run, free, monkeypatch):
    monkeypatch.setattr("billhook.supervising.processes.Supervisor.run", lambda self: 0)

    result = run("serve", "--bind", free, SECRETS=SECRET, URL_PREFIX="hooks/here/")

    assert f"Deliveries: POST http://{free}/hooks/here\n" in result.stdout
    assert "Handlers:   0\nNo handler is registered" in result.stdout


@pytest.mark.slow
def test_the_first_start_is_quiet_about_the_schema(tmp_path):
    environ = {**os.environ, "BILLHOOK_SECRETS": SECRET}
    code = "from billhook.standalone import create_app; create_app()"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )

    assert (tmp_path / "billhook.db").exists()
    assert "alembic" not in done.stderr


def test_a_module_of_plain_subscribers_can_be_served_and_is_counted(run, free, tmp_path, monkeypatch):
    monkeypatch.setattr("billhook.supervising.processes.Supervisor.run", lambda self: 0)
    (tmp_path / "plain_served.py").write_text(
        "from billhook import signals\n"
        "@signals.invoice_approved.connect\n"
        "def book(sender, *, event, delivery): ...\n"
    )

    result = run("serve", "plain_served.py", "--bind", free, SECRETS=SECRET)

    assert result.exit_code == 0, result.output
    assert "Handlers:   1\n" in result.stdout


def test_a_whole_column_is_never_broken_and_a_cut_one_ends_in_dots(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")

    print_table(("name", "key"), [("n" * 50, "k" * 50), ("m", "k")], whole=("name",), cut="key")

    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "n" * 50 + "  " + "k" * 6 + "…"
    assert len(lines) == 4


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_what_an_encoding_lacks_is_printed_as_an_escape(encoding):
    environ = {**os.environ, "PYTHONIOENCODING": encoding}

    ran = subprocess.run(
        [sys.executable, "-m", "billhook", "--help"], env=environ, capture_output=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert "status" in ran.stdout.decode(encoding)
    assert ("…" in ran.stdout.decode(encoding)) == (encoding == "cp1252")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_where_an_output_is_closed_nothing_is_written_and_nothing_fails(tmp_path, closed):
    command = f'"{sys.executable}" -m billhook options {closed}'

    ran = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr, bool(ran.stdout)) == (0, "", closed == "2>&-")


def test_a_line_feed_in_a_cell_is_no_further_row(capsys):
    print_table(("id", "error"), [(1, "first\n2  dead  forged")])

    assert capsys.readouterr().out.splitlines()[-1].split(maxsplit=1) == ["1", r"first\n2  dead  forged"]


def test_no_line_of_a_list_of_commands_is_cut_off():
    groups = [one for _, one in commands(main) if isinstance(one, click.Group)]
    assert len(groups) > 10
    for group in groups:
        with click.Context(group, info_name="billhook", terminal_width=80) as context:
            listed = group.get_help(context).partition("\nCommands:")[2]
        assert "..." not in listed, listed
