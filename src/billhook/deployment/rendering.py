"""Make the files of a deployment from their templates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from billhook.deployment.options_file import quoted
from billhook.deployment.plan import EXAMPLE, DeploymentPlan


@dataclass(frozen=True)
class DeployFile:
    """A file of a deployment."""

    name: str
    text: str
    place: str | None = None
    """Where it is installed; None for one that stays."""
    mode: int = 0o644
    is_options: bool = False
    """Whether its place has values that no command may show."""


@cache
def _templates() -> Environment:
    environment = Environment(  # noqa: S701 - no HTML
        loader=PackageLoader("billhook.deployment"), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["value"] = quoted
    return environment


def render(template: str, plan: DeploymentPlan, **more: object) -> str:
    """Return the text of a template for a plan."""
    return _templates().get_template(template).render(**_words(plan), **more)


def _words(plan: DeploymentPlan) -> dict[str, object]:
    made = (
        "own_app", "etc", "is_postgresql", "state_folder", "command_words", "command", "shell_command",
        "wrapper", "zone",
    )  # fmt: skip
    return plan.to_json() | {name: getattr(plan, name) for name in made}


def files_of(
    plan: DeploymentPlan, own_gunicorn: str | None = None, own_dockerignore: str = ""
) -> Iterator[DeployFile]:
    """Yield the files of a plan; with the text of a gunicorn.conf.py that the app has already."""
    name = plan.name
    options = None if plan.containers else f"{plan.etc}/{name}.env"
    yield DeployFile(f"{name}.env", render("options.env", plan), options, 0o640, is_options=True)
    if plan.own_app:
        text = render("gunicorn", plan, own_gunicorn=own_gunicorn)
        yield DeployFile("gunicorn.conf.py", text, f"{plan.folder}/gunicorn.conf.py", 0o640)
    if plan.containers:
        yield from _container_files(plan, own_dockerignore)
    else:
        yield from _unit_files(plan)
    if plan.has_site:
        place = f"/etc/nginx/conf.d/{name}-billhook.conf"
        yield DeployFile("nginx-http.conf", render("nginx-http.conf", plan), place)
        place = f"/etc/nginx/snippets/{name}-billhook.conf"
        yield DeployFile("nginx-locations.conf", render("nginx-locations.conf", plan), place)
    else:
        yield DeployFile("nginx.conf", render("nginx.conf", plan), f"/etc/nginx/conf.d/{name}.conf")


def _unit_files(plan: DeploymentPlan) -> Iterator[DeployFile]:
    system = "/etc/systemd/system"
    if plan.unit:
        text = render("dropin.conf", plan)
        yield DeployFile("unit-billhook.conf", text, f"{system}/{plan.unit}.d/billhook.conf")
    for kind in ("web.service", "worker.service", "notify.service", "notify.timer"):
        if kind != "web.service" or not plan.unit:
            file = f"{plan.name}-{kind}"
            yield DeployFile(file, render(kind, plan), f"{system}/{file}")
    yield DeployFile(plan.wrapper, render("wrapper.sh", plan), f"/usr/local/bin/{plan.wrapper}", 0o755)


def _container_files(plan: DeploymentPlan, own_dockerignore: str) -> Iterator[DeployFile]:
    yield DeployFile("compose.yaml", render("compose.yaml", plan), f"{plan.folder}/compose.yaml")
    yield DeployFile("Dockerfile", render("Dockerfile", plan), f"{plan.folder}/Dockerfile")
    own = own_dockerignore.splitlines()
    lines = [*own, *(one for one in render("dockerignore", plan).splitlines() if one not in own)]
    yield DeployFile(".dockerignore", "".join(f"{one}\n" for one in lines), f"{plan.folder}/.dockerignore")


def repository_files() -> dict[str, str]:
    """Return the files of deploy/ in the repository that are made from these templates, by name."""
    kinds = ("web.service", "worker.service", "celery.service", "notify.service", "notify.timer")
    return {
        **{f"billhook-{kind}": render(kind, EXAMPLE) for kind in kinds},
        "billhook.env": render("options.env", EXAMPLE),
        "nginx.conf": render("nginx.conf", EXAMPLE),
    }
