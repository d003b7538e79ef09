"""The README of a deployment: the commands that put each file in its place, and what is still to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from billhook.deployment.plan import DeploymentPlan
from billhook.deployment.rendering import DeployFile
from billhook.errors.program import in_program


def guide(
    plan: DeploymentPlan, files: Sequence[DeployFile], seen: Iterable[str], needs: Iterable[str]
) -> DeployFile:
    """Return the README of a folder."""
    commands = _container_commands(plan) if plan.containers else _unit_commands(plan, files)
    lines = [
        f"# {plan.name} with billhook",
        "",
        "Read the files, then run as root, in this folder:",
        "",
        "```sh",
    ]
    lines += [*commands, "```", ""]
    for title, texts in (("The app's own code still needs:", needs), ("What was seen:", seen)):
        if listed := [f"- {text}" for text in texts]:
            lines += [title, "", *listed, ""]
    lines.append(
        in_program("After an upgrade of billhook, `billhook deploy diff` shows what is new and what differs.")
    )
    return DeployFile("README.md", "\n".join(lines) + "\n")


def _secrets(plan: DeploymentPlan) -> str:
    names = ["signing-secret", "notify", *(["pgpass"] if plan.is_postgresql else [])]
    return " ".join(names)


def _nginx(plan: DeploymentPlan, files: Sequence[DeployFile]) -> str:
    site = [file for file in files if file.name.startswith("nginx")]
    installs = " && ".join(f"install -D -m 0644 {file.name} {file.place}" for file in site)
    if plan.has_site:
        include = f"include snippets/{plan.name}-billhook.conf;"
        return f"{installs}  # then write into your server block: {include}"
    return f"{installs} && nginx -t && systemctl reload nginx  # with your certificate in it"


def _unit_commands(plan: DeploymentPlan, files: Sequence[DeployFile]) -> list[str]:
    name, account, etc = plan.name, plan.account, plan.etc
    units = [file.name for file in files if file.name.endswith((".service", ".timer"))]
    lines = [
        f"id {account} || useradd --system --home-dir {plan.folder} --shell /usr/sbin/nologin {account}",
        (
            f"install -d {etc} && for n in {_secrets(plan)}; do test -e {etc}/$n || "
            f"install -m 0400 -o {account} -g {account} /dev/null {etc}/$n; done  # then write the secrets"
        ),
        f"test -e {etc}/{name}.env || install -m 0640 -g {account} {name}.env {etc}/{name}.env",
    ]
    lines += [
        f"install --backup=numbered -m 0640 -g {account} {file.name} {file.place}"
        for file in files if file.name == "gunicorn.conf.py"
    ]  # fmt: skip
    if plan.state_folder:
        lines.append(f"install -d -m 0700 -o {account} -g {account} /var/lib/{name}")
    dropin = "".join(
        f" && install -D -m 0644 {file.name} {file.place}" for file in files if file.name.startswith("unit-")
    )
    started = plan.unit or f"{name}-web"
    command = f"{name}-billhook"
    own = [] if not plan.own_app else [f"{command} check"]
    return [
        *lines,
        f"install -m 0644 -t /etc/systemd/system {' '.join(units)}{dropin}",
        f"install -m 0755 {command} /usr/local/bin/{command} && {command} db upgrade",
        (
            f"systemctl daemon-reload && systemctl enable {started} {name}-worker && "
            f"systemctl restart {started} {name}-worker"
        ),
        _nginx(plan, files),
        " && ".join([*own, f"{command} doctor", f"{command} status"]),
        f"{command} subscribe --callback-url https://{plan.host}{plan.path}  # with the API's options",
        f"systemctl enable --now {name}-notify.timer  # when {etc}/notify has addresses (extra notify)",
    ]


def _container_commands(plan: DeploymentPlan) -> list[str]:
    secrets = "signing-secret pgpass" if plan.is_postgresql else "signing-secret"
    copied = "Dockerfile compose.yaml .dockerignore gunicorn.conf.py"
    names = copied if plan.own_app else copied.removesuffix(" gunicorn.conf.py")
    folder = plan.folder
    return [
        (f"for n in {names}; do test -e {folder}/$n || install -m 0644 $n {folder}/$n; done"
        "  # into those that you have, take the lines over"),
        f"test -e {folder}/{plan.name}.env || install -m 0640 {plan.name}.env {folder}/{plan.name}.env",
        (f"install -d -m 0700 -o 10001 {folder}/secrets && cd {folder}/secrets && for n in {secrets}; do "
        "test -e $n || install -m 0400 -o 10001 /dev/null $n; done && cd -  # then write the secrets"),
        f"docker compose --project-directory {folder} up --build --detach",
        f"docker compose --project-directory {folder} exec worker {_words(plan)} doctor",
        _nginx(plan, [DeployFile("nginx.conf", "", f"/etc/nginx/conf.d/{plan.name}.conf")])
        if not plan.has_site else
        f"install -D -m 0644 nginx-http.conf /etc/nginx/conf.d/{plan.name}-billhook.conf && "
        f"install -D -m 0644 nginx-locations.conf /etc/nginx/snippets/{plan.name}-billhook.conf",
    ]  # fmt: skip


def _words(plan: DeploymentPlan) -> str:
    return f"flask --app '{plan.app}' billhook" if plan.app else "billhook"
