"""`billhook deploy`: the files that bring an app to production, for review, and what differs from them."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from flask.cli import ScriptInfo

from billhook.basics.printable import printable
from billhook.cli.context import user_app
from billhook.cli.output import CliError, UsageConfigError, print_json, print_table
from billhook.cli.params import PATH, as_json, flag, option
from billhook.deployment.folder import Deployment, compare, read_deployment, write_files
from billhook.deployment.guide import guide
from billhook.deployment.looks import Look, about_gunicorn, about_site, find_target, has_billhook, look_at
from billhook.deployment.plan import DeploymentPlan
from billhook.errors import BillhookError, ConfigError
from billhook.errors.program import in_program

_FOLDER = click.Path(file_okay=False, path_type=Path)
_to = option("--to FOLDER", "The folder of the deployment's files.", _FOLDER, default="deployment")


@click.group()
def deploy() -> None:
    """Write the files that bring this app to production, for review, and show what differs from them.

    \b
    Examples:
      flask --app myshop billhook deploy init --host shop.example.com
      flask --app myshop billhook deploy diff
    """


@deploy.command(short_help="Write units, options, nginx's part and a wrapper into a folder.")
@_to
@option("--host NAME", "The host name to which the service posts.")
@option("--name NAME", "What units and files are called. Default: as the app.")
@option("--account NAME", "The account of the services. Default: as --name.")
@option("--folder PATH", "The app's folder on the server. Default: the current one.")
@option("--venv PATH", "Its virtual environment there. Default: the one of this command.")
@option("--database URL", "The inbox, without a password. Default: BILLHOOK_INBOX_URL, or a file of SQLite.")
@option("--target TARGET", "What gunicorn serves, as shop:create_app(). Default: as the app's source has it.")
@option("--handlers LIST", "Standalone: the modules of the handlers. Default: BILLHOOK_HANDLERS.")
@option("--bind ADDRESS", "Where the app listens behind nginx. Default: 127.0.0.1:8000.")
@option("--unit NAME", "The unit that runs the app already; it gets a file beside it.")
@option(
    "--nginx FILE nginx_file", "nginx's site of the app, if there is one: its locations are written.", PATH
)
@option("--gunicorn FILE gunicorn_file", "Default: ./gunicorn.conf.py, if there is one.", PATH)
@flag("--containers", "For Docker Compose instead of systemd.")
@flag("--yes", "Ask nothing: take the defaults.")
@as_json
def init(
    to: Path, nginx_file: Path | None, gunicorn_file: Path | None, yes: bool, as_json: bool, **given: Any
) -> None:
    """Look at this app, and write what it needs in production into one folder.

    That are units of systemd or containers, the file of options (mode 0640), gunicorn's and nginx's lines, a
    timer for messages, a wrapper NAME-billhook for the commands, and a README with the commands that put each
    in its place and with what the app's own code still needs. Nothing is written elsewhere, and no file is
    overwritten. No secret is written. An app that cannot be loaded gets its files all the same.

    \b
    Examples:
      flask --app myshop billhook deploy init
      flask --app myshop billhook deploy init --host shop.example.com --folder /srv/shop --yes
      flask --app myshop billhook deploy init --containers --to containers
      billhook deploy init --handlers myshop.billing --host hooks.example.com --yes
    """
    before = read_deployment(to)
    look = _look()
    plan = _plan(given, before, look, asks=not (yes or as_json), has_site=nginx_file is not None)
    notes = [*look.needs]
    own = before.own_gunicorn if before else None
    gunicorn = gunicorn_file or (Path("gunicorn.conf.py") if Path("gunicorn.conf.py").is_file() else None)
    if before is None and gunicorn is not None:
        text = _read(gunicorn)
        own = None if has_billhook(text) else text
    if own:
        notes += about_gunicorn(own)
    if nginx_file is not None:
        notes += about_site(_read(nginx_file))
    ignored = Path(".dockerignore")
    own_ignored = before.own_dockerignore if before else _read(ignored) if ignored.is_file() else ""
    deployment = Deployment(plan, own, own_ignored)
    files = deployment.files()
    readme = guide(plan, files, look.seen, notes, look.handled)
    written = [*write_files(to, [*files, readme, deployment.as_file()])]
    if as_json:
        files_json = [{"name": one.name, "what": one.what} for one in written]
        print_json({"folder": str(to), "files": files_json, "seen": look.seen, "needs": notes})
        return
    print_table(("file", ""), [(f"{to}/{one.name}", one.what) for one in written], whole=["file"])
    for note in (*look.seen, *notes):
        click.echo(printable(f"- {note}"))
    click.echo(f"Next: read {to}/README.md, which has the commands that put each file in its place.")
    if any(one.what.startswith("kept") for one in written):
        click.echo(in_program("What was kept and differs: `billhook deploy diff` shows it."))


@deploy.command(short_help="Show what differs from this version, and from what is installed.")
@_to
@option("--root FOLDER", "Where the server's files are.", _FOLDER, default="/")
@as_json
def diff(to: Path, root: Path, as_json: bool) -> None:
    """Compare the folder with what this version of billhook makes, and with what is installed.

    Of the file of options the names alone are shown, for the installed one may have secrets. Exit code 1 if
    anything differs.

    \b
    Examples:
      flask --app myshop billhook deploy diff
      billhook deploy diff --to deployment --json
    """
    deployment = read_deployment(to)
    if deployment is None:
        raise UsageConfigError(f"{to} has no deployment: `billhook deploy init` writes one")
    found = [*compare(to, deployment, root)]
    same = not any(one.upgrade or one.installed for one in found)
    if as_json:
        print_json({"same": same, "files": [asdict(one) for one in found]})
    else:
        rows = [(one.name, one.upgrade or "as now", one.installed or "same", one.place) for one in found]
        print_table(("file", "in this version", "installed", "where"), rows, whole=["file", "where"])
        for line in (line for one in found for line in one.lines):
            click.echo(printable(line))
    if not same:
        sys.exit(1)


def _plan(
    given: dict[str, Any], before: Deployment | None, look: Look, *, asks: bool, has_site: bool
) -> DeploymentPlan:
    """Return the plan of the options, of the folder as it was written before, and of the user's answers."""
    old = before.plan.to_json() if before else {}
    values = {**old, **{key: value for key, value in given.items() if value not in (None, False)}}
    values["containers"] = values.get("containers", False)
    values["has_site"] = has_site or old.get("has_site", False)
    app = _app_name()
    values["app"] = app
    cwd = Path.cwd()
    module = "billhook" if app is None else app.partition(":")[0].removesuffix(".py").strip("./")
    called = module.replace("/", ".").partition(".")[0].lower().replace("_", "-")
    values.setdefault("name", called if called not in ("app", "wsgi") else cwd.name.lower().replace("_", "-"))
    defaults = {
        "host": ("Host name to which the service posts", f"{values['name']}.example.com"),
        "account": ("Account of the services", values["name"]),
        "folder": ("The app's folder on the server", str(cwd)),
        "database": (
            "The inbox, without a password",
            _without_password(os.environ.get("BILLHOOK_INBOX_URL"))
            or f"sqlite:////var/lib/{values['name']}/billhook.db",
        ),
    }
    for key, (question, default) in defaults.items():
        if key not in values:
            values[key] = click.prompt(question, default=default, err=True) if asks else default
    values.setdefault("venv", sys.prefix)
    if app is None:
        values.setdefault("handlers", os.environ.get("BILLHOOK_HANDLERS", ""))
        if not values["handlers"]:
            raise UsageConfigError("--handlers names the modules of your handlers, as myshop.billing")
    else:
        values.setdefault("target", find_target(app, cwd))
    if look.paths:
        values["path"] = look.paths[0]
    return DeploymentPlan(**values)


def _without_password(url: str | None) -> str | None:
    """Return the URL of an inbox; None for one with a password, which nothing repeats."""
    try:
        parts = urlsplit(url or "")
    except ValueError:
        return None
    return None if parts.password is not None or "password=" in parts.query else url or None


def _app_name() -> str | None:
    """Return what `flask --app` names; None for `billhook …`. Raises UsageConfigError if it names nothing."""
    info = click.get_current_context().find_object(ScriptInfo)
    if info is None:
        return None
    if info.app_import_path:
        return str(info.app_import_path)
    for file in ("wsgi.py", "app.py"):  # those that flask tries
        if Path(file).is_file():
            return file.removesuffix(".py")
    raise UsageConfigError("no app is named: type `flask --app MODULE billhook deploy init`")


def _look() -> Look:
    """Look at the user's app, with options that were not set yet made up for the moment."""
    if click.get_current_context().find_object(ScriptInfo) is None:
        return Look()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _options_for_a_look(folder):
        try:
            app = user_app()
            assert app is not None  # noqa: S101 - there is a ScriptInfo
            return look_at(app)
        except (BillhookError, CliError, click.ClickException) as error:
            text = error.message if isinstance(error, click.ClickException) else str(error)
            return Look(
                needs=(
                    f"the app could not be loaded, so its logins, hooks and paths were not looked at: {text}",
                    in_program("once it can be loaded: `billhook check`"),
                )
            )


@contextmanager
def _options_for_a_look(folder: str) -> Iterator[None]:
    before = dict(os.environ)
    made_up = {
        "BILLHOOK_INBOX_URL": f"sqlite:///{folder}/billhook.db",
        "BILLHOOK_ENGINE": "worker",
    }
    if not os.environ.keys() & {"BILLHOOK_SECRETS", "BILLHOOK_SECRETS_FILE"}:
        made_up["BILLHOOK_SECRETS"] = secrets.token_hex(32)
    try:
        for name, value in made_up.items():
            os.environ.setdefault(name, value)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {why}") from None
