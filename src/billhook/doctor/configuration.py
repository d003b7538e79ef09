"""Findings about options and secrets, and about gunicorn's settings file."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from billhook.basics.engine_kinds import ENGINES, Place
from billhook.basics.file_modes import access_by_others, read_token_file, shown_path
from billhook.basics.version import installed_version, version_text
from billhook.doctor.finding import Finding
from billhook.extension import get_settings, get_state
from billhook.settings import OPTIONS, Option

if TYPE_CHECKING:
    from billhook.doctor.examined import Setup
    from billhook.settings import Settings
    from billhook.signing.source import Source

_READ_ELSEWHERE = ("secrets_file", "notify_file", "api_refresh_token_file", "metrics_token_file")
"""The options for files that other checks read, which say if one is missing."""
_FEW_CHARACTERS = 8
_GOOD_BYTES = 24
_MOST_TOLERANCE_SECONDS = 900
_PLACEHOLDER = re.compile(r"changeme|change-me|password|placeholder|example|secret", re.IGNORECASE)
_PUBLIC = ("whpk_", "-----BEGIN")
_OWN_CLASS = "billhook.gunicorn_worker.AsgiWorker"
_REFERENCE = "take deploy/gunicorn.conf.py, which says why each setting is as it is"


def option_findings(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Judge the options, but for the secrets and the inbox."""
    if environ.get("BILLHOOK_SECRETS"):
        yield Finding(
            "note", "secrets-in-environment", "the secrets are in the environment (BILLHOOK_SECRETS)",
            "child processes inherit it, and crash reports print it",
            "put them into a file with mode 600 and name it in BILLHOOK_SECRETS_FILE",
        )  # fmt: skip
    if ENGINES[settings.engine].place is Place.REQUEST:
        yield Finding(
            "warning", "engine-inline", f"BILLHOOK_ENGINE is {settings.engine}",
            "handlers run within the request: a slow one delays the answer, and its deadline passes",
            f"set BILLHOOK_ENGINE to thread or worker; {settings.engine} is for tests",
        )  # fmt: skip
    url = urlsplit(settings.api_url or "")
    if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
        yield Finding(
            "error", "api-without-tls", "BILLHOOK_API_URL is not https",
            "the API token goes over the network unencrypted", "write https:// in BILLHOOK_API_URL",
        )  # fmt: skip


def about_tokens(setup: Setup) -> Iterator[Finding]:
    """Find nothing, or raise ConfigError: the files with tokens are read first when a handler needs one."""
    settings = setup.settings
    for key, path in (
        ("BILLHOOK_API_REFRESH_TOKEN_FILE", settings.api_refresh_token_file),
        ("BILLHOOK_METRICS_TOKEN_FILE", settings.metrics_token_file),
    ):
        if path is not None:
            read_token_file(key, path)
    yield from ()


def about_late_options(setup: Setup) -> Iterator[Finding]:
    """Name the options of an app that were set after billhook had read them. Raises ConfigError."""
    if setup.app is None:
        return
    now, read = get_settings(setup.app), get_state(setup.app).settings
    late = [
        option.key for option in OPTIONS if getattr(now, option.attribute) != getattr(read, option.attribute)
    ]
    if late:
        yield Finding(
            "error", "option-late", f"{', '.join(late)} changed after init_app, and not for billhook",
            "it reads its options once, when it is mounted", "set them before init_app(app)",
        )  # fmt: skip


def secret_files(settings: Settings) -> list[tuple[Option, str]]:
    """Return the files with secrets by the option that names them."""
    named = [(option, getattr(settings, option.attribute)) for option in OPTIONS if option.if_read]
    return [(option, name) for option, name in named if name is not None]


def secret_file_findings(settings: Settings) -> Iterator[Finding]:
    """Judge whether the files with secrets are there, and who else may read or replace them."""
    for option, name in secret_files(settings):
        path = Path(name).absolute()
        try:
            path.open("rb").close()
        except OSError as error:
            if option.attribute not in _READ_ELSEWHERE:
                yield Finding(
                    "error", "secret-file-missing",
                    f"{option.key} {shown_path(name)} cannot be read: {error.strerror}",
                    "what needs it fails when it is first used", "make the file, or correct the option",
                )  # fmt: skip
            continue
        access = access_by_others(path)
        if access is not None:
            yield Finding(
                "error" if access == "write" else "warning", f"secret-file-{access}",
                f"other users may {access} {path} ({option.key})",
                option.if_written if access == "write" else option.if_read,
                f"chmod 600 {shlex.quote(str(path))}",
            )  # fmt: skip
        with suppress(OSError):
            mode = path.parent.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                yield Finding(
                    "error", "secret-folder-write",
                    f"any user may replace files in {path.parent} ({option.key})",
                    "the file's own mode does not protect it: another can be put in its place",
                    f"chmod o-w {shlex.quote(str(path.parent))}",
                )  # fmt: skip


def about_version(_: Setup) -> Iterator[Finding]:
    """Say that the build did not know its commit."""
    if installed_version() is None:
        yield Finding(
            "note", "version", version_text(),
            "it was built from a copy without its git history, so pip does not know the next commit from it",
            "build it from a clone, or set BILLHOOK_BUILD_VERSION: `python3 src/billhook_version.py` has it",
        )  # fmt: skip


def about_notifications(setup: Setup) -> Iterator[Finding]:
    """Name the lines that are no addresses. Raises ConfigError for the file, and MissingExtra."""
    if setup.settings.notify_file is not None:
        from billhook.notify import read_addresses

        for error in read_addresses(setup.settings.notify_file)[1]:
            yield Finding(
                "error", "notify-address", str(error),
                "nothing is sent to it when an issue opens", "correct the line: `billhook notify test`",
            )  # fmt: skip


def source_findings(sources: Sequence[Source]) -> Iterator[Finding]:
    """Judge the secrets and the schemes of the sources. No secret is repeated."""
    known: dict[str, str] = {}
    for source in sources:
        for number, secret in enumerate(source.secret_list, 1):
            if not isinstance(secret, str) or secret.startswith(_PUBLIC):
                continue
            yield from _about_a_secret(f"secret {number} of the source {source.name!r}", secret)
            other = known.setdefault(secret, source.name)
            if other != source.name:
                yield Finding(
                    "warning", "secret-shared", f"the sources {other!r} and {source.name!r} share a secret",
                    "each can send deliveries in the other's name, and a leak concerns both",
                    "have each sender make a secret of its own",
                )  # fmt: skip
        if not source.scheme.signs_time:
            yield Finding(
                "warning", "replay", f"the source {source.name!r} signs no time ({source.scheme.name})",
                "anyone who saw a delivery can send it again at any time, and only its key stops that",
                "have the sender sign the time, if it can; keep keys for ever (no BILLHOOK_KEY_DAYS)",
            )  # fmt: skip
        if source.tolerance_seconds > _MOST_TOLERANCE_SECONDS:
            yield Finding(
                "warning", "tolerance", f"{source.name!r} takes deliveries {source.tolerance_seconds} s old",
                "for so long a delivery that was captured can be sent again",
                "correct the clock that is off, and set BILLHOOK_TOLERANCE_SECONDS to 300",
            )  # fmt: skip
        if (many := len(source.secret_list)) > 2:
            yield Finding(
                "warning", "secrets-many", f"the source {source.name!r} has {many} secrets",
                "each old secret can still sign", "after a rotation remove the older one",
            )  # fmt: skip


def _about_a_secret(name: str, secret: str) -> Iterator[Finding]:
    bare = secret.removeprefix("whsec_")
    if len(set(bare)) < _FEW_CHARACTERS or _PLACEHOLDER.search(bare):
        yield Finding(
            "error", "secret-guessable", f"{name} is a word or a pattern, by its looks",
            "who guesses it can forge deliveries, and can try millions a second on one of them",
            "use the one that the service made, or 32 random bytes: head -c 32 /dev/urandom | base64",
        )  # fmt: skip
    elif len(bare) < _GOOD_BYTES:
        yield Finding(
            "warning", "secret-short", f"{name} has {len(bare)} characters",
            "fewer than 24 can be random and still be less than 128 bits",
            "have a longer one made: 32 random bytes",
        )  # fmt: skip


def about_gunicorn(setup: Setup) -> Iterator[Finding]:
    """Judge the settings file that is named, or the one that gunicorn itself would find."""
    path = setup.gunicorn_file or Path("gunicorn.conf.py")
    if path.is_file():
        # A file that is only found here, not named, must not run code of another user's.
        own = path.stat().st_uid in (os.geteuid(), 0) and access_by_others(path) != "write"
        if setup.gunicorn_file is None and not own:
            yield Finding(
                "warning", "gunicorn-file",
                f"{path} is not read: it belongs to another user, or others may write it",
                "it is Python, which gunicorn executes with the rights of its user",
                "make it your own and run `chmod go-w` on it, or name it with --gunicorn",
            )  # fmt: skip
            return
        settings = read_gunicorn_file(path)
        if isinstance(settings, Finding):
            yield settings
        else:
            seconds = setup.settings.deadline_seconds
            yield from gunicorn_findings(settings, seconds, own_app=setup.own_app)


def read_gunicorn_file(path: Path) -> dict[str, Any] | Finding:
    """Execute a settings file, as gunicorn does, and return its names; a finding if it raises."""
    try:
        return runpy.run_path(str(path))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a settings file is Python, and may raise anything
        return Finding(
            "error", "gunicorn-file", f"{path} cannot be read: {type(error).__name__}: {error}",
            "gunicorn does not start with it", "correct the file",
        )  # fmt: skip


def gunicorn_findings(
    settings: Mapping[str, Any], deadline_seconds: float, *, own_app: bool = False
) -> Iterator[Finding]:
    """Judge gunicorn's settings; what they leave out is gunicorn's default. `own_app`: of a Flask app."""
    kind = str(settings.get("worker_class", "sync"))
    threads = settings.get("threads", 1)
    if kind == "sync" and threads == 1:
        yield Finding(
            "error", "gunicorn-worker-class", "worker_class is sync",
            "one slow client occupies a whole process, and deliveries wait behind it",
            f'set worker_class = "{_OWN_CLASS}", or "gthread" for a Flask app; or {_REFERENCE}',
        )  # fmt: skip
    elif kind == _OWN_CLASS and own_app:
        yield Finding(
            "warning", "gunicorn-worker-class", f"worker_class is {_OWN_CLASS}, which runs no Flask app",
            "a process that is given the app itself, such as shop:app, does not start",
            'set worker_class = "gthread" and threads = 16, or give gunicorn hooks.asgi_app(app)',
        )  # fmt: skip
    elif kind == "asgi":
        yield Finding(
            "warning", "gunicorn-worker-class", "worker_class is gunicorn's own asgi",
            "it has no limits for slow and idle clients", f'set worker_class = "{_OWN_CLASS}"',
        )  # fmt: skip
    elif (kind == "gthread" or kind == "sync") and threads < 8:
        yield Finding(
            "warning", "gunicorn-threads", f"gthread has {threads} threads",
            "as many clients as there are threads are served at a time, and slow ones count",
            "set threads = 16, and let nginx wait for whole requests",
        )  # fmt: skip
    timeout = settings.get("timeout", 30)
    if not timeout or timeout <= deadline_seconds:
        hangs = (
            "processes are killed while they work" if timeout else "a process that hangs is never replaced"
        )
        yield Finding(
            "warning", "gunicorn-timeout", f"timeout is {timeout}", hangs,
            "set timeout = 30: single requests are bounded by BILLHOOK_DEADLINE_SECONDS",
        )  # fmt: skip
    graceful = settings.get("graceful_timeout", 30)
    if graceful < deadline_seconds + 5:
        yield Finding(
            "warning", "gunicorn-graceful-timeout", f"graceful_timeout is {graceful}",
            "requests and handlers under way are cut off at each restart", "set graceful_timeout = 20",
        )  # fmt: skip
    keepalive = settings.get("keepalive", 2)
    if keepalive < 60:
        yield Finding(
            "note", "gunicorn-keepalive", f"keepalive is {keepalive}",
            "nginx keeps a connection for 60 s, and a delivery may meet one that is just being closed",
            "set keepalive = 75",
        )  # fmt: skip
    if settings.get("preload_app", False):
        yield Finding(
            "warning", "gunicorn-preload", "preload_app is on",
            "what the app opened before the fork is shared by all processes, and a reload brings no new code",
            "set preload_app = False",
        )  # fmt: skip
    if "*" in str(settings.get("forwarded_allow_ips", "")):
        yield Finding(
            "warning", "gunicorn-forwarded", "forwarded_allow_ips is *",
            "any client can say that it came by TLS, or from another address",
            "name the proxy's address, or leave it out where the proxy is on this machine",
        )  # fmt: skip
