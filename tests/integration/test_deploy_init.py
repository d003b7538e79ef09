"""`billhook deploy init`: systemd, nginx, gunicorn and Compose read its files, and its wrapper is typed."""

from __future__ import annotations

import json
import os
import pty
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gunicorn.config
import pytest
import yaml
from click.testing import CliRunner
from flask.cli import ScriptInfo

from billhook.cli import flask_group
from billhook.deployment.plan import DeploymentPlan
from billhook.deployment.rendering import files_of, render
from support.dockerfile import of, stages
from support.nginx import Nginx
from support.pages import ROOT
from support.processes import clean_environment, run_command
from support.systemd import unit_settings, verify_units

SHOP = """
from flask import Flask, redirect
from billhook import Billhook, Handlers

handlers = Handlers()

def create_app():
    app = Flask(__name__)
    Billhook(handlers=[handlers]).init_app(app, url_prefix="/hooks/in")
    {hook}
    return app
"""
LOGIN = "app.before_request(lambda: redirect('/login'))"
OWN_GUNICORN = """
worker_class = "sync"
preload_app = True
workers = 5

def post_worker_init(worker):
    pass
"""
PLAN = DeploymentPlan(
    name="shop", account="shop", folder="/srv/shop", venv="/srv/shop/.venv", host="shop.example.com",
    database="postgresql+psycopg://shop@db.example.com/shop?sslmode=verify-full&sslrootcert=system",
    app="shop", target="shop:create_app()",
)  # fmt: skip


def python_of_nobody() -> str | None:
    """How the account nobody runs billhook's Python; None if it cannot, or nobody cannot become it here.

    This process's own may be in a folder that root alone reads, such as /root.
    """
    if os.geteuid() != 0:
        return None
    paths = ":".join(path for path in sys.path if path.endswith("site-packages") or path == str(ROOT / "src"))
    system = "/usr/bin/python{}.{}".format(*sys.version_info)
    for program in (sys.executable, f"env PYTHONPATH={paths}:{ROOT / 'src'} {system}"):
        command = ["runuser", "-u", "nobody", "--", *program.split(), "-c", "import billhook.deployment.run"]
        if subprocess.run(command, capture_output=True, cwd="/", check=False).returncode == 0:
            return program
    return None


OF_NOBODY = python_of_nobody()
PYTHON = OF_NOBODY or sys.executable
IS_ROOT = OF_NOBODY is not None
"""Whether the tests become another account: else the wrapper is typed as the account that runs them."""
ACCOUNT = "nobody" if IS_ROOT else pwd.getpwuid(os.getuid()).pw_name
"""Who runs the services in these tests."""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with an app whose login answers deliveries, and a gunicorn.conf.py of its own."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").write_text(SHOP.format(hook=LOGIN))
    (tmp_path / "gunicorn.conf.py").write_text(OWN_GUNICORN)
    return tmp_path


def deploy(folder: Path, *arguments: str, app: str | None = "shop") -> subprocess.CompletedProcess[str]:
    program = ["flask", "--app", app, "billhook"] if app else ["billhook"]
    return run_command(
        [sys.executable, "-m", *program, "deploy", *arguments], cwd=folder, env=clean_environment()
    )


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes()) for path in paths}


# What the command does


def test_it_looks_at_the_app_writes_one_folder_and_overwrites_nothing(shop: Path) -> None:
    before = tree(shop)
    done = deploy(shop, "init", "--yes", "--host", "shop.example.com", "--folder", "/srv/shop")

    assert (done.returncode, done.stderr) == (0, "")
    readme = (shop / "deployment/README.md").read_text()
    assert "302 came from the app" in readme  # what check finds, and the line that mends it
    assert (
        'if request.blueprint in ("billhook", "billhook_health", "billhook_metrics"): return None' in readme
    )
    assert "metrics_blueprint(token=" in readme
    assert "hooks.health_blueprint()" in readme
    assert "gunicorn_conf.post_worker_init(worker)" in readme
    assert "subscribe --callback-url https://shop.example.com/hooks/in" in readme
    assert len(re.search(r"```sh\n(.*?)```", readme, re.DOTALL)[1].splitlines()) <= 12
    after = tree(shop)
    assert {name: after[name] for name in before} == before
    assert {name.split("/")[0] for name in after.keys() - before.keys()} == {"deployment"}
    assert stat.S_IMODE(after["deployment/shop.env"][0]) == 0o640
    assert stat.S_IMODE(after["deployment/gunicorn.conf.py"][0]) == 0o640
    assert stat.S_IMODE(after["deployment/shop-billhook"][0]) == 0o755

    with (shop / "deployment/shop.env").open("a") as options:
        options.write("MINE=1\n")
    again = deploy(shop, "init", "--yes")

    assert "kept, and differs" in again.stdout
    assert (shop / "deployment/shop.env").read_text().endswith("MINE=1\n")
    assert tree(shop).keys() == after.keys()


def test_a_link_in_the_folder_is_not_written_through(shop: Path) -> None:
    (shop / "deployment").mkdir()
    (shop / "deployment/shop.env").symlink_to(shop / "elsewhere")

    assert deploy(shop, "init", "--yes").returncode == 0
    assert not (shop / "elsewhere").exists()


def test_an_app_that_cannot_be_loaded_gets_its_files_all_the_same(shop: Path) -> None:
    (shop / "shop/__init__.py").write_text("import no_such_package\n" + SHOP.format(hook="pass"))
    done = deploy(shop, "init", "--yes", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    assert "No module named 'no_such_package'" in json.loads(done.stdout)["needs"][0]
    assert "gunicorn shop:create_app()" in (shop / "deployment/shop-web.service").read_text()


def test_the_receiver_without_an_app_gets_its_files(tmp_path: Path) -> None:
    done = deploy(tmp_path, "init", "--yes", "--name", "hooks", "--handlers", "billing", app=None)

    assert (done.returncode, done.stderr) == (0, "")
    assert "BILLHOOK_HANDLERS=billing\n" in (tmp_path / "deployment/hooks.env").read_text()
    assert "billhook.standalone:create_asgi_app()" in (tmp_path / "deployment/hooks-web.service").read_text()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--database", "postgresql+psycopg://shop:hunter2hunter2@db/shop"], "pgpass"),
        (["--database", "mysql://db/shop"], "postgresql+psycopg://USER@HOST/NAME"),
        (["--name", "a b"], "--name"),
        (["--account", "root"], "--account root"),
        (["--host", "https://shop.example.com"], "--host"),
        (["--folder", "/srv/shop; id"], "--folder"),
        (["--venv", "/srv/$(id)"], "--venv"),
        (["--unit", "../x.service"], "--unit"),
        (["--target", "shop:create_app('x y')"], "--target"),
    ],
)
def test_what_no_file_can_have_is_refused_by_its_option(
    shop: Path, monkeypatch: pytest.MonkeyPatch, no_options: None, arguments: list[str], what: str
) -> None:
    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # One that cannot be loaded leaves nothing in this process, and would get its files all the same.
    (shop / "shop/__init__.py").write_text("import no_such_package\n" + SHOP.format(hook="pass"))
    command = ["deploy", "init", "--yes", *arguments]

    refused = CliRunner().invoke(flask_group, command, obj=ScriptInfo(app_import_path="shop"))

    assert refused.exit_code != 0
    assert what in refused.stderr
    assert isinstance(refused.exception, SystemExit)  # and no traceback
    assert "hunter2" not in refused.output
    assert not (shop / "deployment").exists()


def test_diff_shows_what_differs_from_what_is_installed_and_no_value_of_an_option(shop: Path) -> None:
    deploy(shop, "init", "--yes", "--folder", "/srv/shop")
    root = shop / "root"
    for folder in ("etc/systemd/system", "etc/shop", "usr/local/bin", "srv/shop", "var/lib"):
        (root / folder).mkdir(parents=True)
    lines = re.search(r"```sh\n(.*?)```", (shop / "deployment/README.md").read_text(), re.DOTALL)[1]
    for line in lines.splitlines():
        command = re.sub(r"(?<![\w.])/(etc|srv|usr|var)/", rf"{root}/\1/", line.split("  #")[0])
        command = re.sub(r" && (nginx|systemctl|shop-billhook) .*|-[og] shop ", "", command)
        if not command.startswith(("id ", "systemctl ", "shop-billhook ")):
            run_command(["sh", "-euc", command], cwd=shop / "deployment", check=True)

    assert (root / "etc/shop/shop.env").stat().st_mode & 0o777 == 0o640
    assert (root / "etc/shop/signing-secret").stat().st_mode & 0o777 == 0o400
    same = deploy(shop, "diff", "--root", str(root))
    assert (same.returncode, same.stderr) == (0, "")

    with (root / "etc/shop/shop.env").open("a") as options:
        options.write("SECRET_KEY=hunter2hunter2\nBILLHOOK_ENGINE=thread\n")
    (root / "etc/systemd/system/shop-web.service").write_text("[Unit]\n")
    (root / "usr/local/bin/shop-billhook").unlink()
    (shop / "deployment/nginx.conf").write_text("# of an older version\n")
    differs = deploy(shop, "diff", "--root", str(root))

    assert differs.returncode == 1
    assert "alone has SECRET_KEY" in differs.stdout
    assert "another value of BILLHOOK_ENGINE" in differs.stdout
    assert "hunter2" not in differs.stdout
    assert "+ExecStart=" in differs.stdout
    assert re.search(r"nginx\.conf +differs", differs.stdout)
    assert re.search(r"shop-billhook +as now +missing", differs.stdout)


def test_diff_without_a_folder_names_init(shop: Path) -> None:
    done = deploy(shop, "diff")

    assert done.returncode == 2
    assert "deploy init" in done.stderr


# What reads its files


@pytest.mark.parametrize(
    "plan",
    [{}, {"app": None, "handlers": "billing"}, {"database": "sqlite:////x.db", "unit": "shop.service"}],
)
def test_systemd_understands_the_units(tmp_path: Path, plan: dict[str, str | None]) -> None:
    made = DeploymentPlan(**{**PLAN.to_json(), **plan})
    units = []
    for file in files_of(made):
        if file.name.endswith((".service", ".timer")):
            (tmp_path / file.name).write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", file.text))
            units.append(tmp_path / file.name)
        elif file.name == "unit-billhook.conf":
            (tmp_path / "shop.service").write_text("[Service]\nExecStart=/bin/true\n")
            (tmp_path / "shop.service.d").mkdir()
            (tmp_path / "shop.service.d/billhook.conf").write_text(file.text)
            units.append(tmp_path / "shop.service")
    assert len(units) == 4
    verify_units(units)


def test_nginx_understands_the_site_and_the_parts_for_a_site_that_is_there(tmp_path: Path) -> None:
    site = render("nginx.conf", PLAN).replace("/etc/ssl/shop", "/etc/ssl/billhook")
    parts = {
        file.name: file.text for file in files_of(DeploymentPlan(**{**PLAN.to_json(), "has_site": True}))
    }
    own = f"{parts['nginx-http.conf']}\nserver {{ listen 127.0.0.1:8443; {parts['nginx-locations.conf']} }}\n"

    for name, text in (("site", site), ("parts", own)):
        done = Nginx(tmp_path / name, text).check()
        assert done.returncode == 0, done.stderr
        assert "Host $http_host;" in text
        assert "$host;" not in text


def test_an_apps_units_are_the_standalone_ones_without_what_would_break_an_app(tmp_path: Path) -> None:
    differences = {"Description", "User", "Group", "WorkingDirectory", "EnvironmentFile", "ExecStart"}
    for file in files_of(PLAN):
        if file.name in ("shop-web.service", "shop-worker.service"):
            (tmp_path / file.name).write_text(file.text)
            ours = unit_settings(tmp_path / file.name)
            theirs = unit_settings(ROOT / "deploy" / file.name.replace("shop", "billhook"))

            assert ours.keys() <= theirs.keys()  # whose reasons deploy/SETTINGS.md gives
            differ = {key for key in ours if ours[key] != theirs[key]}
            assert differ - {"Wants", "After"} == differences | {"ProtectSystem"}
            # An outside address, a file that it writes, a compiler of code.
            breaking = {"IPAddressDeny", "ReadOnlyPaths", "MemoryDenyWriteExecute", "SystemCallFilter"}
            assert not ours.keys() & breaking
            assert not re.search("PASS(WORD)?=|SECRETS=", file.text)


def test_gunicorn_takes_an_own_file_with_billhooks_lines_around_it(shop: Path) -> None:
    deploy(shop, "init", "--yes")
    shutil.copy(shop / "deployment/gunicorn.conf.py", shop)
    command = [sys.executable, "-m", "gunicorn", "--print-config", "shop:create_app()"]
    done = run_command(command, cwd=shop, env=clean_environment(BILLHOOK_SECRETS="x" * 32), check=True)
    settings = dict(re.findall(r"(?m)^(\w+) += (.*)$", done.stdout))

    assert (settings["worker_class"], settings["preload_app"], settings["workers"]) == (
        "gthread",
        "False",
        "5",
    )


def test_compose_has_the_commands_and_the_builder_gets_no_secret(shop: Path) -> None:
    (shop / ".dockerignore").write_text("node_modules\n")
    deploy(shop, "init", "--yes", "--containers", "--database", PLAN.database)
    services = yaml.safe_load((shop / "deployment/compose.yaml").read_text())["services"]

    for name in ("worker", "upgrade"):
        flask, *command = services[name]["command"]
        assert [flask, *command[:3]] == ["flask", "--app", "shop", "billhook"]
        group, rest = flask_group, command[3:]
        while hasattr(group, "commands"):
            group = group.commands[rest.pop(0)]
        group.make_context("billhook", rest)
    program, *arguments = services["web"]["command"]
    assert program == "gunicorn"
    assert gunicorn.config.Config().parser().parse_args(arguments).args == ["shop:create_app()"]
    stop = re.compile(r"TimeoutStopSec=(\d+)")
    for name, unit in (("web", "web.service"), ("worker", "worker.service")):
        assert services[name]["stop_grace_period"] == f"{stop.search(render(unit, PLAN))[1]}s"
        assert services[name]["depends_on"] == {"upgrade": {"condition": "service_completed_successfully"}}
    options = (shop / "deployment/shop.env").read_text()
    files = set(re.findall(r"=(/etc/shop/\S+)", options))
    assert {secret["target"] for secret in services["web"]["secrets"]} == files
    guide = (shop / "deployment/README.md").read_text()
    assert all(f" {Path(file).name}" in guide for file in files)
    _, final = stages((shop / "deployment/Dockerfile").read_text())
    assert of(final, "USER") == ["10001:10001"]
    assert "install -m 0400 -o 10001 " in guide
    ignored = (shop / "deployment/.dockerignore").read_text().splitlines()
    assert {"node_modules", ".venv", "*.env", "secrets", ".git"} <= set(ignored)
    assert not list((shop / "deployment").glob("*.service"))


# The wrapper


@pytest.fixture
def machine() -> Iterator[Path]:
    """A folder that the account can read, with a wrapper whose program says who runs it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "venv/bin").mkdir(parents=True)
    program(folder / "venv/bin/python", f'exec {PYTHON} "$@"')
    program(
        folder / "venv/bin/flask", 'id -un; env; echo "arguments: $*"; pwd; tty; cat /dev/tty 2>&1 | head -1'
    )
    (folder / "shop.env").write_text(
        "BILLHOOK_ENGINE=a$b&c;d\nA=$(touch pwned)\nB=`touch pwned`;touch pwned\n"
    )
    (folder / "shop.env").chmod(0o640)
    if IS_ROOT:
        os.chown(folder / "shop.env", 0, pwd.getpwnam(ACCOUNT).pw_gid)
    values = {"account": ACCOUNT, "folder": str(folder), "venv": f"{folder}/venv"}
    wrapper = render("wrapper.sh", DeploymentPlan(**{**PLAN.to_json(), **values}))
    program(folder / "shop-billhook", wrapper.replace("/etc/shop/", f"{folder}/").removeprefix("#!/bin/sh\n"))
    yield folder
    shutil.rmtree(folder)


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def typed(machine: Path, *before: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [*before, str(machine / "shop-billhook"), "status", "a b", "$(id)"]
    return subprocess.run(
        command, env={"PATH": os.environ["PATH"], **environ}, cwd=machine, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


AS = {"the account": ["runuser", "-u", ACCOUNT, "--"] if IS_ROOT else []} | ({"root": []} if IS_ROOT else {})


@pytest.mark.parametrize("caller", AS)
def test_the_wrapper_runs_a_command_as_the_account_with_the_options_of_the_services(
    machine: Path, caller: str
) -> None:
    done = typed(machine, *AS[caller], SUDO_USER="ann", SECRET_OF_ROOT="x", PYTHONPATH="/nowhere")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == ACCOUNT
    assert {"BILLHOOK_ENGINE=a$b&c;d", "A=$(touch pwned)", "B=`touch pwned`;touch pwned"} <= set(lines)
    assert {"BILLHOOK_COMMAND=shop-billhook", "SUDO_USER=ann", f"USER={ACCOUNT}"} <= set(lines)
    assert "arguments: --app shop billhook status a b $(id)" in lines
    assert str(machine) in lines
    assert not any(line.startswith(("SECRET_OF_ROOT", "PYTHONPATH=/nowhere")) for line in lines)
    assert not (machine / "pwned").exists()


@pytest.mark.parametrize("caller", AS)
def test_the_wrapper_runs_billhooks_own_commands(machine: Path, caller: str) -> None:
    (machine / "shop.env").write_text("")
    (machine / "shop.py").write_text(SHOP.format(hook="pass"))
    program(machine / "venv/bin/flask", f"exec {PYTHON} -m flask --app shop billhook options")
    done = typed(machine, *AS[caller])

    assert done.returncode == 0, done.stderr
    assert "BILLHOOK_INBOX_URL" in done.stdout


def on_a_terminal(command: list[str]) -> str:
    """What a command says on a terminal of its own, whose name is the first line."""
    said = bytearray()

    def read(descriptor: int) -> bytes:
        piece = os.read(descriptor, 65536)
        said.extend(piece)
        return piece

    shell = ["sh", "-c", 'echo "terminal: $(tty)"; exec "$@"', "sh", *command]
    quiet, before = os.open(os.devnull, os.O_WRONLY), os.dup(1)
    empty, stdin = os.open(os.devnull, os.O_RDONLY), os.dup(0)
    os.dup2(quiet, 1)
    os.dup2(empty, 0)
    try:
        pty.spawn(shell, read)
    finally:
        os.dup2(before, 1)
        os.dup2(stdin, 0)
        for descriptor in (quiet, before, empty, stdin):
            os.close(descriptor)
    return said.decode()


@pytest.mark.parametrize("redirected", ["", " 2>&1 | cat", " </dev/null"])
def test_the_account_never_has_the_terminal_of_root(machine: Path, redirected: str) -> None:
    """What it wrote into that by TIOCSTI would be typed by root."""
    if not IS_ROOT:
        assert "runuser --pty" in (machine / "shop-billhook").read_text()  # all that can be known here
        return
    program(
        machine / "venv/bin/flask", "id -un; ls -l /proc/self/fd; ps -o tty= -p $$; sh -c ': </dev/tty' 2>&1"
    )
    said = on_a_terminal(["sh", "-c", f"{machine}/shop-billhook status{redirected}"])
    terminal = re.search(r"terminal: (\S+)", said)[1]
    after = said.partition(ACCOUNT)[2]

    assert after, said
    controlling = re.search(r"(?m)^(pts/\d+|\?)\s*$", after)[1]
    assert f"/dev/{controlling}" != terminal
    if redirected:
        assert controlling == "?"


def test_the_wrapper_refuses_any_other_account(machine: Path) -> None:
    if IS_ROOT:
        done = typed(machine, "runuser", "-u", "daemon", "--")
    else:
        text = (machine / "shop-billhook").read_text()
        program(machine / "shop-billhook", text.replace(f"*:{ACCOUNT})", "*:another-account)"))
        done = typed(machine)

    assert (done.returncode, done.stdout) == (2, "")
    assert "as root or as" in done.stderr


def test_root_reads_and_runs_nothing_that_the_account_can_write(machine: Path) -> None:
    """All that the wrapper names in the account's folders stands behind the change of the account."""
    if not IS_ROOT:
        return
    shutil.chown(machine, ACCOUNT)
    for name in ("venv/bin/python", "venv/bin/flask"):
        program(machine / name, f"id -u >> {machine}/who")
    (machine / "env").symlink_to(machine / "venv/bin/python")
    (machine / "runuser").symlink_to(machine / "venv/bin/python")

    typed(machine, PATH=f"{machine}:{os.environ['PATH']}")

    uid = str(pwd.getpwnam(ACCOUNT).pw_uid)
    assert (machine / "who").read_text().split() == [uid]


def test_options_that_the_account_cannot_read_are_named_with_the_command_that_mends_it(machine: Path) -> None:
    (machine / "shop.env").unlink()
    (machine / "shop.env").mkdir()
    done = typed(machine)

    assert done.returncode == 2
    assert "shop.env cannot be read" in done.stderr
    assert "chmod 0640" in done.stderr
