"""deploy/: what can be known of the image, of compose.yaml, Prometheus and Grafana without Docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import gunicorn.config
import pytest
import yaml
from sqlalchemy import make_url

import billhook
from billhook.cli import main
from billhook.inbox import Inbox
from billhook.metrics import InboxCollector
from billhook.settings import OPTIONS
from support.dockerfile import of, stages
from support.examples import free_port
from support.pages import PAGES, ROOT
from support.processes import children, clean_environment, logged, run_command
from support.signing import SECRET
from support.templates import new_inbox
from support.timeouts import scaled

DEPLOY = ROOT / "deploy"
PAGE = PAGES["deploy/README.md"]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "billhook"}
GRAFANA = json.loads((DEPLOY / "grafana.json").read_text())
UID = "10001"
"""The account of the image."""
ACCOUNTS = {"postgres": "999", "prometheus": "65534", "grafana": "472"}
"""Those of the official images."""


def check_command(program: str, *arguments: str) -> None:
    """Parse a command of the image as its program does; raises for what it does not know."""
    if program == "billhook":
        command, rest = main, list(arguments)
        while hasattr(command, "commands") and rest and rest[0] in command.commands:
            command = command.commands[rest.pop(0)]
        command.make_context("billhook", rest)
        assert command is not main
    else:
        assert program == "gunicorn"
        parsed = gunicorn.config.Config().parser().parse_args(arguments)
        assert parsed.config == "python:billhook.gunicorn_conf"
        assert Path(billhook.__file__).with_name("gunicorn_conf.py").is_file()


# The image


def test_both_stages_have_one_base_and_compilers_stay_in_the_first():
    build, final = stages()

    assert of(build, "FROM") == ["${PYTHON} AS build"]
    assert of(final, "FROM") == ["${PYTHON}"]
    assert "gcc" in " ".join(of(build, "RUN"))
    assert not re.search(r"\b(apt-get|pip|gcc|curl)\b", " ".join(of(final, "RUN")))
    assert of(final, "COPY") == ["--from=build /opt/billhook /opt/billhook"]


def test_the_image_has_the_extras_of_a_service_from_files_that_docker_is_given():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.search(r"'/source\[(.*)\]'", " ".join(of(stages()[0], "RUN")))[1].split(",")
    given = re.findall(r"(?m)^!(.*)$", (ROOT / ".dockerignore").read_text())

    named = {"serve", "postgres", "fast", "metrics", "notify", "asymmetric"}
    assert set(extras) == named <= project["optional-dependencies"].keys()
    assert set(given) == {"pyproject.toml", "src", project["readme"], *project["license-files"]}
    assert all((ROOT / name).exists() for name in given)


def test_the_image_runs_as_a_numbered_account_stops_by_sigterm_and_tells_its_health():
    final = stages()[1]
    names = [name for name, _ in final]

    assert of(final, "USER") == [f"{UID}:{UID}"]
    assert names.index("USER") > max(place for place, name in enumerate(names) if name in ("RUN", "COPY"))
    assert of(final, "STOPSIGNAL") == ["SIGTERM"]
    check_command(*json.loads(of(final, "CMD")[0]))
    assert ":8000/readyz" in of(final, "HEALTHCHECK")[0]
    settings = dict(re.findall(r"(BILLHOOK_\w+)=(\S+)", of(final, "ENV")[0]))
    assert settings.keys() <= {option.key for option in OPTIONS}
    assert of(final, "VOLUME") == [str(Path(make_url(settings["BILLHOOK_INBOX_URL"]).database).parent)]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_it_stops_in_order_as_process_1(tmp_path, command):
    """As in a container without `--init`: the kernel gives process 1 only signals that it asked for."""
    spaces = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*spaces, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel gives no namespaces to this account")
    code = "from billhook import Handlers\nhandlers = Handlers()\n@handlers.on_any()\ndef see(event): ...\n"
    (tmp_path / "billing.py").write_text(code)
    log, port, alive = tmp_path / "log", free_port(), tmp_path / "alive"
    arguments = {"serve": ["--bind", f"127.0.0.1:{port}"], "worker": ["--health-file", str(alive)]}[command]

    started = [*spaces, sys.executable, "-m", "billhook", command, "billing.py", *arguments]
    # Each web process: gunicorn waits long for one that gets its signal as it is forked.
    options = {"cwd": tmp_path, "env": clean_environment(BILLHOOK_SECRETS=SECRET)}
    options["ready"] = lambda: alive.exists() or log.read_text().count("ASGI server listening") == 2
    with logged(started, log, stop=signal.SIGKILL, **options) as outside:
        (inside,) = children(outside.pid)
        os.kill(inside, signal.SIGTERM)

        assert outside.wait(scaled(15)) == 0


# compose.yaml


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_hardened_and_publishes_no_port_to_the_world(name):
    service = SERVICES[name]

    assert service["init"] is service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert "healthcheck" in service or name == "web"  # the image's own
    assert not re.search(r":latest$|/[^:]*$", service["image"])


@pytest.mark.parametrize("name", OURS)
def test_our_services_run_as_the_images_account_with_commands_and_options_that_exist(name):
    service = OURS[name]

    assert service["user"] == f"{UID}:{UID}"
    check_command(*service["command"])
    options = {key for key in service["environment"] if key.startswith("BILLHOOK_")}
    assert options <= {option.key for option in OPTIONS}
    assert make_url(service["environment"]["BILLHOOK_INBOX_URL"]).password is None


def test_secrets_are_files_that_only_the_services_named_get():
    used = {secret for service in SERVICES.values() for secret in service["secrets"]}
    named = re.findall(r"/run/secrets/(\w+)", (DEPLOY / "compose.yaml").read_text())
    named += re.findall(r"/run/secrets/(\w+)", (DEPLOY / "prometheus.yml").read_text())

    assert used == COMPOSE["secrets"].keys() == set(named)
    assert all(secret == {"file": f"secrets/{name}"} for name, secret in COMPOSE["secrets"].items())
    secret = re.compile("PASS|TOKEN|SECRET")
    for service in SERVICES.values():
        for key, text in service.get("environment", {}).items():
            assert not secret.search(key) or text.startswith("/run/secrets/")
    assert subprocess.run(
        ["git", "check-ignore", "-q", "--no-index", "deploy/secrets/signing"], cwd=ROOT, check=False
    ).returncode in (0, 128)  # fmt: skip


def test_the_pages_commands_make_each_secret_for_the_account_that_reads_it(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "chown").write_text('#!/bin/sh\necho "$@" >> "$OWNERS"\n')
    (programs / "openssl").write_text("#!/bin/sh\nhead -c 24 /dev/urandom | od -An -tx1 | tr -d ' \\n'\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    (tmp_path / "deploy").mkdir()
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "notify.txt").write_text("json://example.com/hook\n")
    commands = re.search(r"<!-- secrets -->\n```sh\n(.*?)```", PAGE, re.DOTALL)[1]
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "OWNERS": str(tmp_path / "owners")}

    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, env=environment, check=True, timeout=60)
    first = {path.name: path.read_bytes() for path in (tmp_path / "deploy" / "secrets").iterdir()}
    if os.geteuid() == 0:  # who may write what only its owner may read
        subprocess.run(["sh", "-ec", commands], cwd=tmp_path, env=environment, check=True, timeout=60)
        assert {path.name: path.read_bytes() for path in (tmp_path / "deploy" / "secrets").iterdir()} == first

    made = {path.name: path for path in (tmp_path / "deploy" / "secrets").iterdir()}
    lines = (shlex.split(line) for line in (tmp_path / "owners").read_text().splitlines())
    owners = {name: owner for owner, *names in lines for name in names}
    readers = {
        secret: ACCOUNTS.get(name, UID) for name, service in SERVICES.items() for secret in service["secrets"]
    }
    assert owners == readers
    assert {name: path.stat().st_mode & 0o777 for name, path in made.items()} == dict.fromkeys(readers, 0o400)
    url = make_url(OURS["web"]["environment"]["BILLHOOK_INBOX_URL"])
    password = made["postgres"].read_text().strip()
    assert made["pgpass"].read_text() == f"{url.host}:5432:{url.database}:{url.username}:{password}\n"
    assert url.username == SERVICES["postgres"]["environment"]["POSTGRES_USER"]
    assert url.host in SERVICES
    assert made["metrics"].read_text() == made["prometheus"].read_text()


def test_times_and_probes_are_those_of_the_units_and_of_the_page():
    for name, unit in (("web", "billhook-web"), ("worker", "billhook-worker")):
        stop = re.search(r"TimeoutStopSec=(\d+)", (DEPLOY / f"{unit}.service").read_text())[1]
        assert SERVICES[name]["stop_grace_period"] == f"{stop}s"
        assert SERVICES[name]["depends_on"] == {"upgrade": {"condition": "service_completed_successfully"}}
    (probe,) = re.findall(r"<!-- probe -->\n```sh\n(.+)\n```", PAGE)
    kind, command = SERVICES["worker"]["healthcheck"]["test"]
    assert (kind, command.replace("$$", "$")) == ("CMD-SHELL", probe)
    assert SERVICES["worker"]["command"][-1] in probe


def test_the_page_explains_the_settings_that_containers_add():
    section = PAGES["deploy/SETTINGS.md"].split("\n## compose.yaml\n")[1]
    explained = re.findall(r"`(\w+)`", " ".join(re.findall(r"(?m)^\| (`[^|]*)\|", section)))
    settings = {key for service in SERVICES.values() for key in (*service, *service.get("environment", ()))}

    assert set(explained) <= settings
    assert len(explained) == len(set(explained)) >= 10


def test_each_file_that_compose_hands_over_is_there():
    configs = COMPOSE["configs"]
    handed = {each["source"]: each["target"] for one in SERVICES.values() for each in one.get("configs", ())}

    assert handed.keys() == configs.keys()
    assert all((DEPLOY / config["file"]).is_file() for config in configs.values())
    provider = yaml.safe_load((DEPLOY / "grafana-dashboards.yaml").read_text())["providers"][0]
    assert str(Path(handed["dashboard"]).parent) == provider["options"]["path"]
    source = yaml.safe_load((DEPLOY / "grafana-datasources.yaml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090"


# Prometheus and Grafana


def expressions() -> list[str]:
    """The expressions of the dashboard, with a time in the place of Grafana's variable."""
    texts = [target["expr"] for panel in GRAFANA["panels"] for target in panel["targets"]]
    return [text.replace("$__rate_interval", "5m") for text in texts]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    """The names of all series that a scrape can have."""
    inbox = Inbox(new_inbox(f"sqlite:///{tmp_path_factory.mktemp('metrics') / 'billhook.db'}"))
    families = list(InboxCollector(lambda: inbox).collect())
    inbox.close()
    endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
    return {family.name + ending for family in families for ending in endings[family.type]}


def test_prometheus_understands_what_it_is_given(promtool, tmp_path):
    settings = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (job,) = settings["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["web:8000"]}]
    (tmp_path / "token").write_text("a-token-of-many-characters")
    job["authorization"]["credentials_file"] = str(tmp_path / "token")
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
    shutil.copy(DEPLOY / settings["rule_files"][0], tmp_path)

    command = [promtool, "check", "config", "prometheus.yml"]
    checked = run_command(command, cwd=tmp_path)

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("wrong", [None, "sum by (billhook_runs"], ids=["as it is", "the control"])
def test_prometheus_understands_each_expression_of_the_dashboard(promtool, tmp_path, wrong):
    texts = [*expressions(), *filter(None, [wrong])]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(texts)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    checked = run_command([promtool, "check", "rules", "rules.yml"], cwd=tmp_path)

    assert (checked.returncode == 0) is (wrong is None), checked.stdout + checked.stderr


def test_dashboard_alerts_and_page_name_metrics_that_a_scrape_has(metrics):
    alerts = [
        rule["expr"]
        for rule in yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"][0]["rules"]
    ]
    table = re.findall(r"(?m)^\| `(billhook_\w+)` \|", PAGE)
    named = {name for text in (*expressions(), *alerts) for name in re.findall(r"\bbillhook_\w+", text)}

    assert named - metrics == set()
    families = {name.removesuffix("_bucket") for name in metrics if not name.endswith(("_sum", "_count"))}
    assert families == set(table), "the table of metrics in deploy/README.md"
