"""The README of a deployment: the commands that put each file in its place, and what is still to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from billhook.deployment.plan import DeploymentPlan
from billhook.deployment.rendering import DeployFile
from billhook.errors.program import in_program


def guide(
    plan: DeploymentPlan, files: Sequence[DeployFile], seen: Iterable[str], needs: Iterable[str], handled: str
) -> DeployFile:
    """Return the README of a folder. `handled` is the event type to try it with; "" if none is known."""
    commands = _container_commands(plan) if plan.containers else _unit_commands(plan, files)
    commands += _first_deliveries(plan, handled)
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
    names = ["signing-secret", *(["pgpass"] if plan.is_postgresql else []), "api-token"]
    return " ".join(names)


def _nginx(plan: DeploymentPlan, files: Sequence[DeployFile]) -> str:
    site = [file for file in files if file.name.startswith("nginx")]
    installs = " && ".join(f"install -D -m 0644 {file.name} {file.place}" for file in site)
    if plan.has_site:
        include = f"include snippets/{plan.name}-billhook.conf;"
        return f"{installs}  # then write into your server block: {include}"
    return f"{installs} && nginx -t && systemctl reload nginx  # with your certificate in it"


def _first_deliveries(plan: DeploymentPlan, handled: str) -> list[str]:
    """Return what is typed when all runs: the checks, one delivery through nginx, then the subscription."""
    command = plan.wrapper
    if plan.containers:
        words = f"flask --app '{plan.app}' billhook" if plan.app else "billhook"
        command = f"docker compose --project-directory {plan.folder} exec worker {words}"
    checks = ["doctor", "status"]
    if plan.own_app:
        checks.insert(0, "check")
    receives = f"https://{plan.host}{plan.path}"
    sent = handled or "InvoiceApproved"
    return [
        " && ".join(f"{command} {check}" for check in checks),
        f"{command} send {sent} --to {receives}  # through nginx, to your handlers",
        f"{command} subscribe --callback-url {receives}  # with the API's options set",
    ]


def _unit_commands(plan: DeploymentPlan, files: Sequence[DeployFile]) -> list[str]:
    name, account, etc = plan.name, plan.account, plan.etc
    units = [file.name for file in files if file.name.endswith((".service", ".timer"))]
    state = f" && install -d -m 0700 -o {account} -g {account} /var/lib/{name}" if plan.state_folder else ""
    lines = [
        (
            f"id {account} || useradd --system --home-dir {plan.folder} --shell /usr/sbin/nologin {account}"
            f"{state}"
        ),
        (
            f"install -d {etc} && for n in {_secrets(plan)} notify; do test -e {etc}/$n || "
            f"install -m 0400 -o {account} -g {account} /dev/null {etc}/$n; done  # then write the secrets"
        ),
        f"test -e {etc}/{name}.env || install -m 0640 -g {account} {name}.env {etc}/{name}.env",
    ]
    lines += [
        f"install --backup=numbered -m 0640 -g {account} {file.name} {file.place}"
        for file in files if file.name == "gunicorn.conf.py"
    ]  # fmt: skip
    dropin = "".join(
        f" && install -D -m 0644 {file.name} {file.place}" for file in files if file.name.startswith("unit-")
    )
    started = plan.unit or f"{name}-web"
    command = plan.wrapper
    return [
        *lines,
        f"install -m 0644 -t /etc/systemd/system {' '.join(units)}{dropin}",
        f"install -m 0755 {command} /usr/local/bin/{command} && {command} db upgrade",
        (
            f"systemctl daemon-reload && systemctl enable {started} {name}-worker && "
            f"systemctl restart {started} {name}-worker"
        ),
        _nginx(plan, files),
        f"systemctl enable --now {name}-notify.timer  # when {etc}/notify has addresses (extra notify)",
    ]


def _container_commands(plan: DeploymentPlan) -> list[str]:
    copied = "Dockerfile compose.yaml .dockerignore gunicorn.conf.py"
    names = copied if plan.own_app else copied.removesuffix(" gunicorn.conf.py")
    folder = plan.folder
    return [
        (f"for n in {names}; do test -e {folder}/$n || install -m 0644 $n {folder}/$n; done"
        "  # into those that you have, take the lines over"),
        f"test -e {folder}/{plan.name}.env || install -m 0640 {plan.name}.env {folder}/{plan.name}.env",
        (f"install -d -m 0700 -o 10001 {folder}/secrets && cd {folder}/secrets && "
        f"for n in {_secrets(plan)}; do test -e $n || install -m 0400 -o 10001 /dev/null $n; done && cd -"
        "  # then write the secrets"),
        f"docker compose --project-directory {folder} up --build --detach",
        _nginx(plan, [DeployFile("nginx.conf", "", f"/etc/nginx/conf.d/{plan.name}.conf")])
        if not plan.has_site else
        f"install -D -m 0644 nginx-http.conf /etc/nginx/conf.d/{plan.name}-billhook.conf && "
        f"install -D -m 0644 nginx-locations.conf /etc/nginx/snippets/{plan.name}-billhook.conf",
    ]  # fmt: skip
