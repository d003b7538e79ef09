"""deploy/: gunicorn runs with its configuration, the page explains every setting, the values agree."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path

import gunicorn.config
import pytest

import billhook
from billhook.cli.serve import worker as worker_command
from billhook.deployment.rendering import repository_files
from billhook.engines import ThreadEngine
from billhook.events import InvoiceApproved, sample
from billhook.settings import OPTIONS
from support.examples import free_port
from support.inbox_view import value
from support.nginx import Nginx
from support.postgres import with_options
from support.processes import clean_environment, logged, run_command, until
from support.server import ask, get, head, is_up, request
from support.signing import SECRET, signed
from support.systemd import unit_settings, verify_units
from support.templates import new_inbox
from support.worker_group import HANDLERS

DEPLOY = Path(__file__).parents[2] / "deploy"
CONF = DEPLOY / "gunicorn.conf.py"
UNITS = (DEPLOY / "billhook-web.service", DEPLOY / "billhook-worker.service")
CELERY_UNIT = DEPLOY / "billhook-celery.service"
NOTIFY_UNIT, TIMER = DEPLOY / "billhook-notify.service", DEPLOY / "billhook-notify.timer"
SITE = DEPLOY / "nginx.conf"
ASGI, WSGI = "billhook.standalone:create_asgi_app()", "billhook.standalone:create_app()"
THREADS = ("-k", "gthread", "--worker-connections", "1000")
NOTING = """
@handlers.on(InvoiceApproved, retry=[])
def note(event: InvoiceApproved, delivery) -> None:
    Path(f"handled-{delivery.id}").touch()
"""


# Reading the files


def conf_settings() -> set[str]:
    """The names that gunicorn.conf.py sets; its imports and private names are not settings."""
    names = set()
    for node in ast.parse(CONF.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def conf_value(name: str) -> str:
    """What a real gunicorn makes of a setting."""
    output = gunicorn_output("--print-config")
    return next(
        line.split("=", 1)[1].strip() for line in output.splitlines() if line.split("=")[0].strip() == name
    )


@cache
def gunicorn_output(flag: str) -> str:
    command = [sys.executable, "-m", "gunicorn", "-c", str(CONF), flag, "billhook.signals:emit"]
    done = run_command(command, env=clean_environment(), check=True)
    return done.stdout


def env_settings() -> dict[str, str]:
    return dict(re.findall(r"(?m)^([A-Z_]+)=(.*)$", (DEPLOY / "billhook.env").read_text(encoding="utf-8")))


def nginx_settings() -> dict[str, str]:
    """Directive and the last value of each."""
    text = re.sub(r"(?m)^\s*#.*$", "", SITE.read_text(encoding="utf-8"))
    return {name: value.strip() for name, value in re.findall(r"(?m)^\s*([a-z_]+) *(.*?)[;{]$", text)}


def explained(heading: str) -> set[str]:
    """The settings in the first column of the table under a heading of deploy/SETTINGS.md."""
    page = (DEPLOY / "SETTINGS.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert len(names) == len(set(names)), "a setting is explained twice"
    return set(names)


def default_of(key: str) -> float:
    return float(next(option.default for option in OPTIONS if option.key == key))


def size_bytes(text: str) -> int:
    return int(text.removesuffix("k")) * 1024


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


# The page and the files


def test_the_page_explains_every_setting_and_no_other() -> None:
    units = {key for unit in (*UNITS, CELERY_UNIT, NOTIFY_UNIT, TIMER) for key in unit_settings(unit)}
    settings = {
        "gunicorn.conf.py": conf_settings(),
        "Units": units,
        "billhook.env": set(env_settings()),
        "nginx.conf": set(nginx_settings()),
    }

    assert {heading: explained(heading) for heading in settings} == settings


def test_every_setting_of_gunicorn_exists() -> None:
    assert conf_settings() <= set(gunicorn.config.make_settings())


def test_billhook_serve_runs_with_the_same_file() -> None:
    packaged = Path(billhook.__file__).parent / "gunicorn_conf.py"
    assert CONF.read_bytes() == packaged.read_bytes()


def test_every_option_in_the_environment_file_exists_and_none_is_secret() -> None:
    secret = {option.key: option.secret for option in OPTIONS}
    assert env_settings().keys() <= secret.keys()
    assert "BILLHOOK_SECRETS" not in env_settings()


WEB, WORKER = UNITS
OF_COMMANDS = {"Description", "ExecStart", "Type", "NotifyAccess", "WatchdogSec"}
DIFFERENCES = {
    WEB: {
        *(
            "Description",
            "Wants",
            "WatchdogSec",
            "ExecStart",
            "ExecReload",
            "TimeoutStartSec",
            "TimeoutStopSec",
        ),
        *("LimitNOFILE", "IPAddressDeny", "IPAddressAllow"),
    },
    CELERY_UNIT: OF_COMMANDS,
    NOTIFY_UNIT: OF_COMMANDS
    | {"KillMode", "WantedBy", "StartLimitIntervalSec", "Restart", "RestartSec", "TimeoutStopSec"}
    | {"TimeoutStartSec", "Environment"},
}
"""In what each unit differs from the worker's: all are confined alike."""


@pytest.mark.parametrize("unit", DIFFERENCES, ids=lambda unit: unit.name)
def test_the_units_differ_only_in_what_they_run(unit: Path) -> None:
    worker, other = unit_settings(WORKER), unit_settings(unit)
    assert {key for key in worker.keys() | other.keys() if worker.get(key) != other.get(key)} == DIFFERENCES[
        unit
    ]


def test_no_other_unit_has_the_addresses_of_the_notify_unit() -> None:
    assert unit_settings(NOTIFY_UNIT)["Environment"] == "BILLHOOK_NOTIFY_FILE=/etc/billhook/notify"
    others = (*UNITS, CELERY_UNIT, DEPLOY / "billhook.env")
    assert not any("NOTIFY_FILE" in path.read_text(encoding="utf-8") for path in others)


def test_a_timer_looks_for_issues_some_times_in_two_minutes() -> None:
    assert int(unit_settings(TIMER)["OnUnitInactiveSec"]) <= 30


def test_the_units_stop_timeouts_exceed_the_grace_periods() -> None:
    web, worker = (int(unit_settings(unit)["TimeoutStopSec"]) for unit in UNITS)
    graceful = int(conf_value("graceful_timeout"))
    worker_grace = next(option.default for option in worker_command.params if option.name == "grace")
    thread_grace = inspect.signature(ThreadEngine.stop).parameters["grace_seconds"].default

    assert web > graceful > default_of("BILLHOOK_DEADLINE_SECONDS") + thread_grace
    assert worker > worker_grace


def test_a_web_process_may_open_more_files_than_connections() -> None:
    assert int(unit_settings(UNITS[0])["LimitNOFILE"]) > int(conf_value("worker_connections")) + 1_000


def test_nginx_and_gunicorn_agree() -> None:
    site = nginx_settings()
    largest = int(default_of("BILLHOOK_MAX_BODY_BYTES"))

    assert largest < size_bytes(site["client_max_body_size"]) <= largest * 1.1
    assert size_bytes(site["client_body_buffer_size"]) >= size_bytes(site["client_max_body_size"])
    assert seconds(site["keepalive_timeout"]) < int(conf_value("keepalive"))
    assert seconds(site["proxy_read_timeout"]) > default_of("BILLHOOK_DEADLINE_SECONDS")
    assert int(site["keepalive"]) < int(conf_value("worker_connections"))
    upstream = re.search(r"upstream billhook \{\s+server ([^;]+);", SITE.read_text(encoding="utf-8"))
    assert upstream is not None
    assert conf_value("bind") == f"['{upstream[1]}']"
    prefix = next(option.default for option in OPTIONS if option.key == "BILLHOOK_URL_PREFIX")
    assert f"location {prefix} {{" in SITE.read_text()


def test_nginx_answers_with_the_receivers_own_bodies() -> None:
    from billhook.errors import BodyTooLarge, InboxUnavailable
    from billhook.receiver.responses import error_response

    bodies = re.findall(r"return (\d+) '(.*)';", SITE.read_text(encoding="utf-8"))

    assert [(int(status), body.encode()) for status, body in bodies] == [
        tuple(error_response(error)[:2]) for error in (BodyTooLarge(), InboxUnavailable())
    ]


# The programs


def running(
    command: list[str], folder: Path, *, port: int | None = None, **options: str
) -> AbstractContextManager[object]:
    """A program of ours, ready at its port, which has to stop in order when it is told."""
    (folder / "note.py").write_text(HANDLERS + NOTING)
    ready = None if port is None else partial(is_up, port, "/readyz", 200)
    environ = clean_environment(**{"BILLHOOK_SECRETS": SECRET, "BILLHOOK_HANDLERS": "note", **options})
    return logged(command, folder / "log", ready=ready, code=0, grace=15, cwd=folder, env=environ)


def commands_of_the_units() -> tuple[int, list[str], list[str]]:
    """What the units start, with our programs in the place of the installed ones, and on which port."""
    web, worker = (ours(unit_settings(unit)["ExecStart"]) for unit in UNITS)
    port = free_port()
    return port, [web[0], "--bind", f"127.0.0.1:{port}", *web[1:]], worker


def ours(command: str) -> list[str]:
    """A command of the page or of a unit, with our programs in the place of the installed ones."""
    program, *arguments = command.split()
    return [str(Path(sys.executable).parent / Path(program).name), *arguments]


def deliver(port: int) -> int:
    body = sample(InvoiceApproved).to_json()
    return ask(port, request(body, signed(body, "InvoiceApproved"))).status


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "statuses"),
    [
        (("--config", str(CONF), ASGI), {"healthz": 404, "zzz": 200, "ssl": 200}),
        (("--config", str(CONF), *THREADS, WSGI), {"healthz": 404, "zzz": 200, "ssl": 200}),
        # The control: gunicorn's own settings believe whoever comes over loopback.
        ((WSGI,), {"healthz": 200, "zzz": 500, "ssl": 400}),
    ],
    ids=["with our settings", "with our settings and threads", "with gunicorn's own"],
)
def test_a_clients_header_names_no_path_and_no_scheme(
    tmp_path: Path, flags: tuple[str, ...], statuses: dict[str, int]
) -> None:
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "-b", f"127.0.0.1:{port}", "--no-control-socket", *flags]
    options = {"BILLHOOK_SECRETS": SECRET, "BILLHOOK_ENGINE": "worker"}

    with running(command, tmp_path, port=port, **options):
        found = {
            "healthz": ask(port, head({"SCRIPT_NAME": "/zzz"}, method="GET", path="/zzz/healthz")).status,
            "zzz": ask(port, head({"SCRIPT_NAME": "/zzz"}, method="GET", path="/healthz")).status,
            "ssl": get(port, "/healthz", X_Forwarded_Ssl="off", X_Forwarded_Proto="https").status,
        }

    assert found == statuses


@pytest.mark.slow
def test_a_flask_app_on_the_event_loop_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "gunicorn", "--config", str(CONF), "-b", address, WSGI]
    done = run_command(command, cwd=tmp_path, env=clean_environment(BILLHOOK_SECRETS=SECRET))

    assert done.returncode != 0
    assert "create_asgi_app()" in done.stderr
    assert "-k gthread" in done.stderr
    # gunicorn shows a traceback of its own, now and then, when two of its workers end in the same moment.
    assert not re.search(r'File ".*/billhook/', done.stderr)


def page_commands(port: int) -> tuple[list[str], list[str]]:
    """What the page starts in the place of the units' commands: threads, and several worker processes."""
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    threads = ours(next(re.finditer(r"(?m)^ExecStart=(.* -k gthread .*)$", page))[1])
    several = ours(next(re.finditer(r"(?m)^ExecStart=(.*billhook worker --processes.*)$", page))[1])
    return [threads[0], "--bind", f"127.0.0.1:{port}", *threads[1:]], several


@pytest.mark.slow
@pytest.mark.parametrize("how", ["units", "celery unit", "page"])
def test_the_documented_commands_accept_and_handle_a_delivery_and_stop(tmp_path: Path, how: str) -> None:
    (tmp_path / "signing-secret").write_text(f"# the billing service's\n{SECRET}\n")
    options = env_settings() | {
        "BILLHOOK_HANDLERS": "note",
        "BILLHOOK_INBOX_URL": f"sqlite:///{tmp_path}/inbox.db",
        "BILLHOOK_SECRETS_FILE": str(tmp_path / "signing-secret"),
        "BILLHOOK_SECRETS": "",
    }
    port, web, worker = commands_of_the_units()
    if how == "page":
        web, worker = page_commands(port)
    elif how == "celery unit":
        code = "from celery import Celery\ncelery = Celery(broker='memory://')\n"
        (tmp_path / "tasks.py").write_text(code)
        options |= {"BILLHOOK_ENGINE": "celery", "BILLHOOK_CELERY_APP": "tasks:celery"}
        worker = ours(unit_settings(CELERY_UNIT)["ExecStart"])
    with running(web, tmp_path, port=port, **options):
        assert deliver(port) == 200
        with running(worker, tmp_path, **options):
            until((tmp_path / "handled-1").exists, 30)


@pytest.mark.slow
def test_a_process_holds_no_more_postgresql_connections_than_documented(
    tmp_path: Path, postgres_url: str
) -> None:
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    allowed = int(re.findall(r"Count on (\d+) connections\s+for each web\s+process and each worker", page)[0])
    url = with_options(new_inbox(postgres_url), "", application_name=f"deploy-{os.getpid()}")
    port, web, worker = commands_of_the_units()
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ?"
    held: list[int] = []

    with (
        running(
            web, tmp_path, port=port, BILLHOOK_INBOX_URL=url, BILLHOOK_ENGINE="worker", WEB_CONCURRENCY="1"
        ),
        running(worker, tmp_path, BILLHOOK_INBOX_URL=url),
    ):
        with ThreadPoolExecutor(16) as senders:
            for _ in range(3):
                answers = set(senders.map(lambda _: deliver(port), range(32)))
                held.append(value(url, count, f"deploy-{os.getpid()}"))
                assert answers == {200}
        until(lambda: len(list(tmp_path.glob("handled-*"))) == 96, 30)
        held.append(value(url, count, f"deploy-{os.getpid()}"))

    assert 2 <= max(held) <= 2 * allowed


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for unit in (*UNITS, CELERY_UNIT):  # the paths of the programs are the reader's to make
        text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(encoding="utf-8"))
        (tmp_path / unit.name).write_text(text)
    verify_units(tmp_path / unit.name for unit in (*UNITS, CELERY_UNIT))


def test_nginx_understands_the_site(tmp_path: Path) -> None:
    done = Nginx(tmp_path / "nginx", SITE.read_text(encoding="utf-8")).check()

    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_page_has_the_files_of_this_folder_written(tmp_path: Path) -> None:
    """Its command makes what is in deploy/, where the folders are those of the page."""
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- standalone -->\n```console\n(.*?)```", page, re.DOTALL)
    install, init = (line.removeprefix("# ") for line in block.splitlines())
    venv, folder = re.search(r"venv (\S+) &&", install)[1], re.search(r"cd (\S+) &&", init)[1]
    arguments = [*shlex.split(init.partition("venv/bin/billhook ")[2]), "--venv", venv, "--folder", folder]
    done = run_command(
        [sys.executable, "-m", "billhook", *arguments], cwd=tmp_path, env=clean_environment(), check=True
    )

    written = {path.name: path.read_text() for path in (tmp_path / "deployment").iterdir()}
    made = {name: text for name, text in repository_files().items() if name != CELERY_UNIT.name}
    assert {name: written[name] for name in made} == made
    assert "billhook" in written  # the wrapper
    assert "/usr/local/bin/billhook" in page
    assert "deployment/README.md" in done.stdout
    assert (DEPLOY.parent / "pyproject.toml").is_file()  # what `pip install .` needs there
