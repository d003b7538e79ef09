"""deploy/FLASK.md: its files and commands bring an app of one's own to production, word for word."""

from __future__ import annotations

import contextlib
import getpass
import http.client
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from billhook.events import InvoiceApproved, sample
from support.examples import free_port
from support.nginx import HOST, Nginx
from support.pages import PAGES, ROOT, marked
from support.processes import clean_environment, logged, output_of, run_command, strangers_environment, until
from support.signing import SECRET, signed_by_package
from support.systemd import Service, verify_units

PAGE = PAGES["deploy/FLASK.md"]
BLOCKS = {f"{kind}: {name}": text for kind, name, text in marked(["deploy/FLASK.md"])}
UNITS = ("shop-web.service", "shop-worker.service")
PLACES = re.compile(r"(?<![\w.])/(srv/shop|etc/shop|etc/nginx|etc/systemd/system|usr/local/bin|var/lib)\b")
RECEIVES = "https://shop.example.com/webhooks/billing"
NEW_SECRET = "whsec_bmV3IHNlY3JldCBvZiB0aGUgYmlsbGluZyBzZXJ2aWNlIQ=="
# What the commands do to the machine. The test has its own account, and starts the services itself.
ACCOUNT = re.compile(r"^id shop \|\| useradd [^&\n]*(?: && )?|-o shop -g shop |-g shop ", re.MULTILINE)
SYSTEM = re.compile(r"(?<![\w./-])(?:systemctl|nginx) [^&\n]*")


class Project:
    """The page's project, below a folder that stands for the machine's root.

    `values` replace words of the page's commands and of the options.
    """

    def __init__(self, root: Path, environment: dict[str, str], values: dict[str, str]) -> None:
        self.root, self.folder, self.values = root, root / "srv/shop", values
        self.environment = environment | {"PATH": f"{root}/usr/local/bin:{environment['PATH']}"}
        for place in ("etc/systemd/system", "usr/local/bin"):
            (root / place).mkdir(parents=True)
        for marker, text in BLOCKS.items():
            kind, name = marker.split(": ")
            if kind == "file":
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")

    def here(self, text: str) -> str:
        """The text with the folders of this test, and with the values."""
        for word, value in self.values.items():
            text = text.replace(word, value)
        return PLACES.sub(lambda found: f"{self.root}/{found[1]}", text)

    def run(self, commands: str, folder: Path) -> str:
        lines = SYSTEM.sub("true ", ACCOUNT.sub("", self.here(commands)))
        return output_of("bash", "-euc", lines, cwd=folder, env=self.environment, timeout=1200)

    def typed(self, name: str, **instead: str) -> str:
        """Run a block of commands as they stand, and return what they said."""
        lines = re.sub(r"(?m)^# ", "", BLOCKS[f"command: {name}"])
        for word, other in instead.items():
            assert word in lines
            lines = lines.replace(word, other)
        return self.run(lines, self.folder)

    def guide(self) -> list[str]:
        """The commands of the deployment's README, without their remarks."""
        text = (self.folder / "deployment/README.md").read_text()
        return [
            line.split("  #")[0] for line in re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1].splitlines()
        ]

    def move_here(self) -> None:
        """Have the written files name this test's folders and account."""
        for path in (self.folder / "deployment").iterdir():
            if path.name != "README.md":
                text = self.here(path.read_text())
                path.write_text(text.replace("*:shop)", f"*:{getpass.getuser()})"))

    def put_in_place(self, secrets: dict[str, str]) -> str:
        """Type the deployment's commands up to those of the page's last block; return what they said."""
        said = ""
        for line in self.guide():
            if line.startswith("shop-billhook "):
                break
            said += self.run(line, self.folder / "deployment")
            for name, text in secrets.items() if "signing-secret" in line else ():
                self.write_secret(name, text)
            if "shop.env" in line:
                options = self.root / "etc/shop/shop.env"
                assert options.stat().st_mode & 0o777 == 0o640
                text = self.here(re.sub(r"(?m)^#(?=BILLHOOK_API)", "", options.read_text()))
                options.write_text(
                    text.replace("CLIENT_ID=\n", f"CLIENT_ID={self.values['org-client-id']}\n")
                )
        return said

    def write_secret(self, name: str, text: str) -> None:
        """Write a secret as the page says: its owner and its mode stay."""
        path = self.root / "etc/shop" / name
        assert path.stat().st_mode & 0o777 == 0o400
        if os.geteuid() != 0:
            path.chmod(0o600)
        self.run(f"cat > {path} <<'END'\n{text}\nEND\n", self.folder)
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


def deliver(nginx: Nginx, port: int, invoice: str, secret: str = SECRET) -> Any:
    """Send a delivery that the standardwebhooks package has signed."""
    body = sample(InvoiceApproved, invoice_id=invoice).to_json()
    signed = signed_by_package(body, "InvoiceApproved", f"msg_{invoice}", secret)
    return request(nginx, port, "POST", "/webhooks/billing", body, **signed)


def site(project: Project, https: int, web: int) -> str:
    """The site that was written, on other ports."""
    text = (project.root / "etc/nginx/conf.d/shop.conf").read_text()
    text = text.replace("server 127.0.0.1:8000;", f"server 127.0.0.1:{web};")
    text = text.replace("/etc/ssl/shop/", "/etc/ssl/billhook/")
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
    with contextlib.ExitStack() as running:
        service = running.enter_context(sandbox(tmp_path))
        values = {
            re.search(r"postgresql\S+(?=')", BLOCKS["command: init"])[0]: postgres_url,
            "https://billing.example.com": service["BILLHOOK_API_URL"],
            "org-client-id": service["BILLHOOK_API_CLIENT_ID"],
            # This machine has no shop.example.com.
            RECEIVES: f"http://127.0.0.1:{web}/webhooks/billing",
        }
        project = Project(tmp_path / "machine", strangers_environment(), values)
        environment(project)
        project.typed("init")
        project.move_here()
        secrets = {"signing-secret": SECRET, "pgpass": "*:*:*:*:unused"}
        secrets["api-token"] = service["BILLHOOK_API_REFRESH_TOKEN"]
        assert "-> 0" in project.put_in_place(secrets)
        for line in project.guide()[:3]:  # typed once more they empty no secret and no option
            project.run(line, project.folder / "deployment")
        units = [project.root / "etc/systemd/system" / unit for unit in UNITS]
        verify_units(units)

        receiver, worker = (
            running.enter_context(Service(unit, project.environment, more))
            for unit, more in zip(units, (["--bind", f"127.0.0.1:{web}"], []), strict=True)
        )
        nginx = Nginx(tmp_path / "nginx", site(project, https, web))
        running.enter_context(nginx.running(https))
        first = project.typed("first")
        sandbox_call(service, "POST", "/_sandbox/trigger/InvoiceApproved", '{"invoiceId": "inv_service"}')
        sent = deliver(nginx, https, "inv_independent")
        for invoice in ("inv_service", "inv_independent"):
            until(lambda invoice=invoice: f"invoice {invoice} is approved" in worker.log.read_text(), 60)

        assert "verified and answered by billhook" in first
        assert "No delivery has been received yet" in first  # and nothing else that needs attention
        assert re.search(r"InvoiceApproved +(done|unread|running)", first), first
        assert not re.search(r"WRONG|ERROR|gunicorn", first), first
        assert first.index('200 {"status": "accepted"}') < first.index(" subscribed")
        assert first.count(" subscribed") == 1
        assert sent == (200, '{"status": "accepted"}')
        assert deliver(nginx, https, "inv_independent") == (200, '{"status": "duplicate"}')
        assert request(nginx, https, "GET", "/") == (200, "the shop")
        # The limit on deliveries is not the app's: 405, or 502 if gunicorn closes before nginx has sent all.
        assert request(nginx, https, "POST", "/", b"x" * 300_000)[0] in (405, 502)
        assert request(nginx, https, "POST", "/webhooks/billing", b"x" * 300_000)[0] == 413

        assert deliver(nginx, https, "inv_early", NEW_SECRET)[0] == 401
        project.write_secret("signing-secret", f"{NEW_SECRET}\n{SECRET}")
        receiver.reload()  # as the page has it: no restart
        until(lambda: deliver(nginx, https, "inv_rotated", NEW_SECRET)[0] == 200, 60)
        assert deliver(nginx, https, "inv_of_the_old_secret")[0] == 200

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
    assert len(re.findall("```", PAGE)) == 2 * len(BLOCKS)
    assert files == {"requirements.txt", "shop/__init__.py"}


def test_the_page_is_short():
    assert PAGE.count("\n") <= 150


def test_the_page_names_the_files_and_the_last_commands_that_are_written(tmp_path):
    project = Project(tmp_path, clean_environment(), {})
    this_environment(project)
    project.typed("init")
    written = {path.name for path in (project.folder / "deployment").iterdir()}
    last = [line.removeprefix("# ") for line in BLOCKS["command: first"].splitlines()]

    table = PAGE.split("| file | what it is |")[1].split("\n\n")[0]
    named = {
        name for line in table.splitlines()[1:] for name in re.findall(r"`([\w.-]+)`", line.split("|")[1])
    }
    assert written - named == {"deploy.json", "shop-notify.service"}
    assert named <= written
    assert [line for line in last if "deliveries list" not in line] == [
        line for line in project.guide() if line.startswith("shop-billhook ")
    ]
