"""deploy/FLASK.md: its files and commands bring an app of one's own to production, word for word."""

from __future__ import annotations

import contextlib
import http.client
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gunicorn.config
import pytest
import yaml

from billhook.cli import main
from billhook.events import InvoiceApproved, sample
from support.dockerfile import of, stages
from support.examples import free_port
from support.nginx import HOST, Nginx
from support.pages import PAGES, ROOT, marked
from support.processes import clean_environment, logged, output_of, run_command, strangers_environment, until
from support.signing import SECRET, signed_by_package
from support.systemd import Service, unit_settings, verify_units

PAGE = PAGES["deploy/FLASK.md"]
BLOCKS = {f"{kind}: {name}": text for kind, name, text in marked(["deploy/FLASK.md"])}
UNITS = ("shop-web.service", "shop-worker.service")
PLACES = re.compile(r"(?<![\w.])/(srv/shop|etc/shop|etc/systemd/system)\b")
LOCATION = re.search(r"<!-- nginx -->\n```nginx\n(.*?)```", PAGE, re.DOTALL)[1]
RECEIVES = "https://shop.example.com/webhooks/billing"
# What the page does to the machine. The test has its own account, and starts the services itself.
ACCOUNT = re.compile(
    r"^id shop \|\| useradd .*\n|-o (?:shop|root) -g shop |runuser -u shop -- |^systemctl .*\n", re.MULTILINE
)


class Project:
    """The page's project, below a folder that stands for the machine's root.

    `values` replace words of its options.
    """

    def __init__(self, root: Path, environment: dict[str, str], values: dict[str, str]) -> None:
        self.root, self.folder, self.environment = root, root / "srv/shop", environment
        (root / "etc/systemd/system").mkdir(parents=True)
        for marker, text in BLOCKS.items():
            kind, name = marker.split(": ")
            if kind == "file":
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.here(text), encoding="utf-8")
        options = self.folder / "shop.env"
        text = options.read_text()
        for word, value in values.items():
            assert text.count(word) == 1
            text = text.replace(word, value)
        options.write_text(text)

    def here(self, text: str) -> str:
        return PLACES.sub(lambda found: f"{self.root}/{found[1]}", text)

    def typed(self, name: str, **instead: str) -> str:
        """Run a block of commands as they stand, and return what they said."""
        lines = re.sub(r"(?m)^# ", "", BLOCKS[f"command: {name}"])
        for word, other in instead.items():
            assert word in lines
            lines = lines.replace(word, other)
        enter = (
            "cd /srv/shop && set -a && . /etc/shop/shop.env\n" if (self.root / "etc/shop").is_dir() else ""
        )
        shell = ["bash", "-euc", self.here(enter + ACCOUNT.sub("", lines))]
        return output_of(*shell, cwd=self.folder, env=self.environment, timeout=1200)

    def write_secret(self, name: str, text: str) -> None:
        path = self.root / "etc/shop" / name
        assert path.stat().st_mode & 0o777 == 0o400
        path.chmod(0o600)
        path.write_text(text + "\n")
        path.chmod(0o400)


@contextlib.contextmanager
def sandbox(folder: Path) -> Iterator[dict[str, str]]:
    """The billing service, whose API is called and which sends what was subscribed; gives its options."""
    command = [sys.executable, "-m", "billhook", "sandbox", "--allow-private", "--database", "temporary"]
    log, port = folder / "sandbox.log", free_port()
    exported = r"(BILLHOOK_API_\w+)=(\S+)\s"
    options = {"cwd": folder, "env": clean_environment(BILLHOOK_SECRETS=SECRET)}
    options["ready"] = lambda: len(re.findall(exported, log.read_text())) == 3
    with logged([*command, "--bind", f"127.0.0.1:{port}"], log, **options):
        yield dict(re.findall(exported, log.read_text()))


def sandbox_call(options: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "billhook", "sandbox", "call", *arguments]
    run_command(command, env=clean_environment(**options), check=True)


def request(nginx: Nginx, port: int, method: str, path: str, body: bytes = b"", **headers: str) -> Any:
    """Status and body of a request to the site over TLS."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=nginx.trust)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Host": HOST, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def deliver(nginx: Nginx, port: int, invoice: str) -> Any:
    """Send a delivery that the standardwebhooks package has signed."""
    body = sample(InvoiceApproved, invoice_id=invoice).to_json()
    signed = signed_by_package(body, "InvoiceApproved", f"msg_{invoice}")
    return request(nginx, port, "POST", "/webhooks/billing", body, **signed)


def site(https: int, web: int) -> str:
    """deploy/nginx.conf with the page's location in the place of its last one."""
    text = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    last = text[text.rindex("    location ") : text.rindex("}")]
    assert "return 404;" in last
    text = text.replace(last, LOCATION).replace("server 127.0.0.1:8000;", f"server 127.0.0.1:{web};")
    return re.sub(r"(?m)^    listen \[::\].*\n", "", text).replace("listen 443", f"listen 127.0.0.1:{https}")


def this_environment(project: Project) -> None:
    """Let the project have the packages of this test, for the page's install command takes a minute."""
    (project.folder / ".venv").symlink_to(Path(sys.executable).parents[1])


def an_environment_of_its_own(project: Project) -> None:
    """Install as the page says, from this checkout in the place of the page's git server."""
    forge = project.root / "billhook.git"
    run_command(["git", "clone", "--quiet", "--bare", str(ROOT), str(forge)], check=True)
    run_command(["git", "branch", "--force", "main", "HEAD"], cwd=forge)  # refused where HEAD is main
    project.environment |= {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{forge}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://git.example.com/tools/billhook",
    }
    project.typed("install")


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param(this_environment, marks=pytest.mark.slow),
        pytest.param(an_environment_of_its_own, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
    ids=["with these packages", "from pip install on"],
)
def test_a_stranger_gets_to_a_handled_delivery_and_through_an_upgrade(tmp_path, postgres_url, environment):
    https, web = free_port(), free_port()
    nginx = Nginx(tmp_path / "nginx", site(https, web))
    with contextlib.ExitStack() as running:
        service = running.enter_context(sandbox(tmp_path))
        values = {
            re.search(r"postgresql\S+(?=')", BLOCKS["file: shop.env"])[0]: postgres_url,
            "https://billing.example.com": service["BILLHOOK_API_URL"],
            "org-client-id": service["BILLHOOK_API_CLIENT_ID"],
        }
        project = Project(tmp_path / "machine", strangers_environment(), values)
        environment(project)
        project.typed("units")
        project.write_secret("signing-secret", SECRET)
        project.write_secret("pgpass", "*:*:*:*:unused")
        project.write_secret("api-token", service["BILLHOOK_API_REFRESH_TOKEN"])
        project.typed("units")  # typed once more it empties no secret
        units = [project.root / "etc/systemd/system" / unit for unit in UNITS]
        verify_units(units)

        assert "-> 0" in project.typed("schema")
        receiver, worker = (
            running.enter_context(Service(unit, project.environment, more))
            for unit, more in zip(units, (["--bind", f"127.0.0.1:{web}"], []), strict=True)
        )
        running.enter_context(nginx.running(https))
        subscribed = project.typed("subscribe", **{RECEIVES: f"http://127.0.0.1:{web}/webhooks/billing"})
        sandbox_call(service, "POST", "/_sandbox/trigger/InvoiceApproved", '{"invoiceId": "inv_service"}')
        sent = deliver(nginx, https, "inv_independent")
        for invoice in ("inv_service", "inv_independent"):
            until(lambda invoice=invoice: f"invoice {invoice} is approved" in worker.log.read_text(), 60)

        assert subscribed.count(" subscribed") == 1
        assert sent == (200, '{"status": "accepted"}')
        assert deliver(nginx, https, "inv_independent") == (200, '{"status": "duplicate"}')
        assert request(nginx, https, "GET", "/") == (200, "the shop")
        # The limit on deliveries is not the app's: 405, or 502 if gunicorn closes before nginx has sent all.
        assert request(nginx, https, "POST", "/", b"x" * 300_000)[0] in (405, 502)
        assert request(nginx, https, "POST", "/webhooks/billing", b"x" * 300_000)[0] == 413
        told = project.typed("look")
        assert "verified and answered by billhook" in told
        assert "All is well" in told
        assert not re.search(r"WRONG|ERROR|gunicorn", told), told
        assert len(re.findall(r"InvoiceApproved +done", told)) == 2

        worker.stop()
        if environment is an_environment_of_its_own:
            upgrade_by_git(project)
        else:
            project.typed("upgrade", **{".venv/bin/pip install": ": pip install"})
        receiver.restart()
        assert deliver(nginx, https, "inv_after")[0] == 200
        worker.start()
        until(lambda: "invoice inv_after is approved" in worker.log.read_text(), 60)
        worker.stop()
        receiver.stop()


def upgrade_by_git(project: Project) -> None:
    """Upgrade to a new commit, which has a version of its own; and from a folder."""
    work, python = project.root / "work", project.folder / ".venv" / "bin" / "python"
    run_command(
        ["git", "clone", "--quiet", "--branch", "main", project.root / "billhook.git", work], check=True
    )
    with (work / "src/billhook/__init__.py").open("a") as module:
        module.write("NEW = True\n")
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "-am", "New"]
    run_command(commit, cwd=work, check=True)
    run_command(["git", "push", "--quiet", "origin", "main"], cwd=work, check=True)

    def is_new() -> bool:
        script = "import billhook, sys; sys.exit(not hasattr(billhook, 'NEW'))"
        return run_command([python, "-c", script], env=project.environment).returncode == 0

    assert not is_new()
    project.typed("upgrade")
    assert is_new()
    requirement = re.search(r"`(billhook\S+ @ )file:///srv/src/billhook`", PAGE)[1]
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps"]
    run_command([*pip, f"{requirement}{work.as_uri()}"], env=project.environment, check=True)
    assert is_new()


def test_every_block_of_the_page_is_played():
    commands = {marker for marker in BLOCKS if marker.startswith("command")}
    files = {marker.removeprefix("file: ") for marker in BLOCKS.keys() - commands}

    played = re.findall(r'typed\("(\w+)"', Path(__file__).read_text(encoding="utf-8"))
    assert commands == {f"command: {name}" for name in played}
    assert len(re.findall("```", PAGE)) == 2 * (len(BLOCKS) + len([LOCATION]))
    assert all(f"`{name}`" in PAGE for name in files), files


def test_the_units_are_the_standalone_ones_but_where_an_app_differs(tmp_path):
    differences = {"Description", "User", "Group", "WorkingDirectory", "EnvironmentFile", "ExecStart"}
    for name, standalone in zip(UNITS, ("billhook-web.service", "billhook-worker.service"), strict=True):
        (tmp_path / name).write_text(BLOCKS[f"file: {name}"])
        ours, theirs = unit_settings(tmp_path / name), unit_settings(ROOT / "deploy" / standalone)

        assert ours.keys() <= theirs.keys()  # whose reasons deploy/README.md gives
        differ = {key for key in ours if ours[key] != theirs[key]}
        assert differ - {"Wants"} == differences | {"ProtectSystem"}
        # What would break an app: an outside address, a file that it writes, a compiler of code.
        breaking = {"IPAddressDeny", "ReadOnlyPaths", "MemoryDenyWriteExecute", "SystemCallFilter"}
        assert not ours.keys() & breaking


def test_the_containers_run_what_the_units_run_with_the_same_options(tmp_path):
    compose = yaml.safe_load(BLOCKS["file: compose.yaml"])
    services = compose["services"]
    in_container = {
        "web": ["--bind", "0.0.0.0:8000"],
        "worker": ["--health-file", "/tmp/billhook.alive"],
    }
    for unit, (name, more) in zip(UNITS, in_container.items(), strict=True):
        (tmp_path / unit).write_text(BLOCKS[f"file: {unit}"])
        settings = unit_settings(tmp_path / unit)
        program, *arguments = settings["ExecStart"].split()
        command = services[name]["command"]

        assert [word for word in command if word not in more] == [Path(program).name, *arguments]
        assert set(more) <= set(command)
        assert services[name]["stop_grace_period"] == f"{settings['TimeoutStopSec']}s"
        assert services[name]["depends_on"] == {"upgrade": {"condition": "service_completed_successfully"}}
        assert services[name]["env_file"] == "shop.env"
    assert gunicorn.config.Config().parser().parse_args(services["web"]["command"][1:]).bind == [
        "0.0.0.0:8000"
    ]
    parsed = main.commands["worker"].make_context("worker", list(in_container["worker"]))
    assert str(parsed.params["health_file"]) == "/tmp/billhook.alive"
    upgrade = " ".join(services["upgrade"]["command"])
    assert all(f".venv/bin/{upgrade}\n" in BLOCKS[f"command: {name}"] for name in ("schema", "upgrade"))
    files = set(re.findall(r"=(/etc/shop/\S+)", BLOCKS["file: shop.env"]))
    assert {secret["target"] for secret in services["web"]["secrets"]} == files
    assert compose["secrets"] == {Path(name).name: {"file": f"secrets/{Path(name).name}"} for name in files}


def test_the_image_has_what_the_project_needs_and_an_account_without_rights():
    build, final = stages(BLOCKS["file: Dockerfile"])
    copied = {word for line in of(final, "COPY") + of(build, "COPY") for word in line.split()[:-1]}
    saved = {
        marker.removeprefix("file: ").partition("/")[0] for marker in BLOCKS if marker.startswith("file")
    }

    # The units are for a machine without containers, and options and secrets come in when it runs.
    outside = {*UNITS, "Dockerfile", "compose.yaml", "shop.env"}
    assert copied - {"--from=build", "/srv/venv"} == saved - outside
    assert of(final, "USER") == ["10001:10001"]
    assert f"chown {of(final, 'USER')[0].partition(':')[0]} secrets/*" in PAGE
