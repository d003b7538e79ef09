"""Declare the options once: each one's name, default, unit, meaning and parser, as the fields of Settings.

`billhook options` and the README's table are printed from OPTIONS, which is read from the fields of Settings.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from billhook.basics.engine_kinds import THREAD, engine_options
from billhook.basics.file_modes import read_secret_file
from billhook.basics.type_names import is_path
from billhook.errors import ConfigError
from billhook.errors.program import COMMAND_LENGTH, SECRET_MARKS, is_command
from billhook.signing.schemes import SCHEMES, schemes_with

__all__ = ["ENVIRON", "OPTIONS", "Option", "Settings", "from_environ", "read_secrets_file"]

PREFIX = "BILLHOOK_"
ENVIRON = "billhook_environ"
"""Key in `app.extensions` of an environment to read instead of os.environ: the standalone app has it."""
LABEL_LENGTH = 100
"""Characters of the name of a release, and of an environment."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LINE_OF_ENV_FILE = re.compile(r"(?:export\s+)?[A-Z][A-Z0-9_]*\s*=\s*[^\s=]")
_VERSION_OF_SECRET = re.compile(r"(?<![^,\s])v1a?,(?=wh(?:sec|sk|pk)_)")
"""Some senders show a secret with this prefix; its comma does not separate items."""
# Variables of billhook's own tests, and variables that commands read by themselves; they are not options.
NOT_OPTIONS = ("BILLHOOK_SPEC", "BILLHOOK_TEST_", "BILLHOOK_FAILPOINT", "BILLHOOK_SANDBOX_")


@dataclass(frozen=True, slots=True)
class Option:
    """One configuration key. `parse` takes what Flask's config or the environment holds."""

    key: str
    help: str
    parse: Callable[[str, Any], Any]
    default: Any = None
    unit: str = ""
    secret: bool = False
    if_read: str = ""
    """What follows if others may read the file that it names; only a file with secrets has it."""
    if_written: str = ""

    @property
    def attribute(self) -> str:
        """The name of the field of Settings that holds it."""
        return self.key.removeprefix(PREFIX).lower()

    @property
    def default_text(self) -> str:
        """The default as a user would write it; empty when there is none."""
        if isinstance(self.default, tuple):
            return ",".join(f"{item:g}" if isinstance(item, float) else item for item in self.default)
        return "" if self.default is None else str(self.default)


def _text(key: str, value: Any) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str | Path):
        raise ConfigError(
            f"{key} must be text, got {type(value).__name__} (put it into double quotes in the environment)"
        )
    return str(value)


def _text_or(empty: str) -> Callable[[str, Any], str]:
    """Parse a text, for which `empty` stands where there is none."""
    return lambda key, value: _text(key, value) or empty


def _fitting(
    fits: Callable[[str], object], what: str, empty: str = "", longest: int = 64
) -> Callable[[str, Any], str]:
    """Parse a text that `fits`, in words `what`; `empty` stands where there is none."""

    def parse(key: str, value: Any) -> str:
        text = _text(key, value) or empty
        if not fits(text):
            raise ConfigError(f"{key} is {_masked(text, longest)}: it must be {what}")
        return text

    return parse


def _masked(value: Any, longest: float = math.inf) -> str:
    """Return a value for an error's text, masked if it may be a secret in the wrong option."""
    text = repr(value)
    marked = any(mark in text for mark in (*SECRET_MARKS, "://"))
    # A long one may be a secret without a recognisable prefix.
    long = isinstance(value, str | bytes) and len(value) > longest
    return "a value that looks like a secret" if marked or long else text


def _either(names: Iterable[str]) -> str:
    """Return names as a part of a sentence, the last after `or`."""
    return " or ".join(", ".join(names).rsplit(", ", 1))


def _choice(*allowed: str) -> Callable[[str, Any], str]:
    def parse(key: str, value: Any) -> str:
        if value not in allowed:
            raise ConfigError(f"{key} is {_masked(value)}: it must be one of {', '.join(allowed)}")
        return str(value)

    return parse


def _number(minimum: float, maximum: float) -> Callable[[str, Any], float]:
    def parse(key: str, value: Any) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not minimum <= number <= maximum:
            raise ConfigError(
                f"{key} is {_masked(value, 15)}: it must be a number from {minimum:g} to {maximum:.12g}"
            )
        return number

    return parse


def _integer(minimum: int, maximum: int) -> Callable[[str, Any], int]:
    def parse(key: str, value: Any) -> int:
        number = _number(minimum, maximum)(key, value)
        if number != int(number):
            raise ConfigError(f"{key} is {value!r}: it must be a whole number")
        return int(number)

    return parse


def _items(key: str, value: Any) -> tuple[Any, ...]:
    """Split a list, a tuple or a comma-separated text into items; a single number is a list of one."""
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    if isinstance(value, list | tuple):
        return tuple(value)
    return (value,)


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        raise ConfigError(
            f"{key} stands in quotes, which are part of it (docker --env-file keeps them): remove them"
        )
    if isinstance(value, str):
        value = _VERSION_OF_SECRET.sub("", value)
    items = _items(key, value)
    for item in items:
        if not isinstance(item, str):
            # The value may be a secret that the environment's JSON reading made a number: name the type only.
            raise ConfigError(
                f"{key} holds a {type(item).__name__}: every item must be text (quote it in the environment)"
            )
    return items


_label = _fitting(
    lambda text: len(text) <= LABEL_LENGTH and text.isprintable(),
    f"at most {LABEL_LENGTH} printable characters",
    longest=LABEL_LENGTH,
)


def _optional(parse: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda key, value: None if value in (None, "") else parse(key, value)


def _option(
    help: str,  # noqa: A002 - the attribute's name
    parse: Callable[[str, Any], Any] = _text,
    *,
    secret: bool = False,
    **more: Any,
) -> Any:
    """Declare a field of Settings, with the arguments of its Option as metadata."""
    return field(repr=not secret, metadata={"help": help, "parse": parse, "secret": secret, **more})


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed options, one field each; secrets do not show in its repr.

    A field `engine` is the option BILLHOOK_ENGINE: its default, unit, help text and parser stand beside it.
    """

    signature: str = _option(
        f"How deliveries are signed: {_either(SCHEMES)}.",
        _choice(*SCHEMES),
        default="standard-webhooks",
    )
    signature_algorithm: str = _option(
        f"How {schemes_with('signature_algorithm')} sign, where it is not by SHA-256: hmac-sha512.",
        # What there is, the schemes know.
        _text_or("hmac-sha256"),
        default="hmac-sha256",
    )
    secrets: tuple[str, ...] = _option(
        "Signing secrets, newest first, separated by commas; list two to rotate. For timestamped-rsa: PEM.",
        _texts,
        default=(),
        unit="list",
        secret=True,
    )
    secrets_file: str | None = _option(
        "A file with the secrets instead, one per line (or PEM blocks), newest first.",
        unit="path",
        if_read="who knows a signing secret can forge deliveries",
        if_written="who can write it can put a secret of their own into it, and then forge deliveries",
    )
    signature_header: str | None = _option(
        "The header with the signature, where the scheme lets one choose (default X-Webhook-Signature)."
    )
    timestamp_header: str | None = _option(
        f"The header with the time of signing, for {schemes_with('timestamp_header')} (default "
        "X-Webhook-Timestamp)."
    )
    type_header: str = _option(
        "The header that names the event type; a source may have its own, Source(type_header=…).",
        _fitting(_HEADER_NAME.fullmatch, "the name of a header, as X-Webhook-Type", "X-Webhook-Type"),
        default="X-Webhook-Type",
    )
    type_field: str | None = _option(
        "The field of the JSON body that names the event type, where no header does: type, or event.type for "
        "a field of an object. For the default source; others have their own, Source(type_field=…).",
        _optional(_fitting(is_path, "the path of a field, as type or event.type")),
    )
    signature_prefix: str = _option(
        f"What {schemes_with('signature_prefix')} expects before the hex digits (with hmac-sha512: sha512=). "
        "Empty for bare digits.",
        _text_or(""),
        default="sha256=",
    )
    replay_protection: str | None = _option(
        f"{schemes_with('replay_protection')} signs no time: set dedupe-only to accept deduplication as the "
        "only protection.",
        _optional(_choice("dedupe-only")),
    )
    tolerance_seconds: int = _option(
        "How far the time of signing may be from now, either way.",
        _integer(1, 86_400),
        default=300,
        unit="seconds",
    )
    inbox_url: str | None = _option(
        "Where deliveries are stored: sqlite:///PATH (default: billhook.db in the instance folder; "
        "standalone, in the current one), or postgresql+psycopg://USER:PASSWORD@HOST/NAME.",
        unit="URL",
        secret=True,
    )
    inbox_schema: str = _option(
        "The PostgreSQL schema that the inbox has to itself; `billhook db upgrade` creates it.",
        _text_or("billhook"),
        default="billhook",
    )
    inbox_pool_mode: str = _option(
        "What a pooler before PostgreSQL keeps for a connection, if there is one: nothing beyond a "
        "transaction, or a session of its own (pgbouncer's pool_mode).",
        _choice("transaction", "session"),
        default="transaction",
    )
    max_body_bytes: int = _option(
        "Maximum request body; enforced while reading.",
        _integer(1, 16 * 1024 * 1024),
        default=262_144,
        unit="bytes",
    )
    engine: str = _option(
        f"Where handlers run: {_either(f'{name} ({kind.help})' for name, kind in engine_options().items())}.",
        _choice(*engine_options()),
        default=THREAD.name,
    )
    celery_app: str | None = _option(
        'For the celery engine: your Celery app, as myshop.tasks:celery (default: app.extensions["celery"]).'
    )
    rq_queue: str | None = _option(
        'For the rq engine: your RQ queue, as myshop.tasks:queue (default: app.extensions["rq"]).'
    )
    deadline_seconds: float = _option(
        "How long a sender waits for an answer at most; then it is 503.",
        _number(0.1, 60),
        default=2.5,
        unit="seconds",
    )
    lease_seconds: float = _option(
        "How long a worker may be silent before its runs go to others.",
        _number(0.5, 86_400),
        default=30.0,
        unit="seconds",
    )
    retry_schedule_seconds: tuple[float, ...] = _option(
        "The wait before each further attempt of a failed handler; after the last it is dead.",
        lambda key, value: tuple(_number(0, 31 * 86_400)(key, item) for item in _items(key, value)),
        default=(10.0, 60.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0),
        unit="seconds",
    )
    retry_jitter: float = _option(
        "How much longer, at random, a wait between attempts may be: 0.1 is up to a tenth; 0 is exact.",
        _number(0, 1),
        default=0.1,
    )
    retention_days: float = _option(
        "How long finished deliveries are kept; their keys, which identify duplicates, at least 7 days.",
        _number(0, 36_500),
        default=30.0,
        unit="days",
    )
    key_days: float | None = _option(
        "How long keys of deliveries that sign no time (body-hmac) are kept, at least 7 (default: forever).",
        _optional(_number(7, 36_500)),
        unit="days",
    )
    backlog_limit: int | None = _option(
        "Answer 503 while this many deliveries wait to be handled (default: no limit).",
        _optional(_integer(1, 10**9)),
        unit="deliveries",
    )
    rate_limits: str = _option(
        "Whether the rate limits of an app (Flask-Limiter) also apply to deliveries: exempt or apply.",
        _choice("exempt", "apply"),
        default="exempt",
    )
    release: str = _option(
        "The release of your code: issues, deliveries and workers are shown with it.", _label, default=""
    )
    environment: str = _option(
        "Where this is, such as production or staging: in the subject of messages about issues.",
        _label,
        default="",
    )
    command: str = _option(
        "How billhook's commands begin for who reads a hint, such as sudo shop-billhook: hints, messages and "
        "pages print it. It is shown, never run.",
        _fitting(
            is_command,
            f"at most {COMMAND_LENGTH} printable characters, with no blank before or after",
            longest=COMMAND_LENGTH,
        ),
        default="",
    )
    log_format: str = _option(
        "Standalone, and `billhook worker`: format of log records, text or json (one object per line).",
        _choice("text", "json"),
        default="text",
    )
    handlers: tuple[str, ...] = _option(
        "Standalone: the modules (or .py files) whose Handlers are used.", _texts, default=(), unit="list"
    )
    url_prefix: str = _option(
        "Standalone: the path that receives deliveries.",
        _text_or("/"),
        default="/webhooks/billing",
        unit="path",
    )
    dashboard: str | None = _option(
        "Standalone: a password file for the dashboard at /billhook, one USER:PASSWORD per line.",
        unit="path",
        if_read="who knows a password of the dashboard sees every delivery, and may replay and discard",
        if_written="who can write it can let anyone see every delivery, and replay and discard",
    )
    notify_file: str | None = _option(
        "A file with the addresses that are notified of issues, one for each line (extra billhook[notify]).",
        unit="path",
        if_read="the addresses hold passwords and tokens: who knows them can send in your name",
        if_written="who can write it can have messages sent elsewhere, or none at all",
    )
    dashboard_url: str | None = _option("Where the dashboard is, for links in notifications.", unit="URL")
    metrics_token_file: str | None = _option(
        "Standalone: a file with the bearer token of /metrics; /metrics is served only if this is set.",
        unit="path",
        if_read="who knows the token reads the metrics: numbers of deliveries, names of handlers",
        if_written="who can write it can let anyone read the metrics",
    )
    api_url: str | None = _option(
        "For calls to the service's API: its base address, of production or of the sandbox.", unit="URL"
    )
    api_client_id: str | None = _option(
        "For calls to the service's API: the client id of your organization.", secret=True
    )
    api_refresh_token: str | None = _option(
        "For calls to the service's API: the API token, created in its dashboard.", secret=True
    )
    api_refresh_token_file: str | None = _option(
        "A file with that token instead.",
        unit="path",
        if_read="who knows the API token calls the service in your organization's name",
        if_written="who can write it can have billhook call the service in another organization's name",
    )

    @classmethod
    def from_mapping(cls, config: Mapping[str, Any]) -> Settings:
        """Parse every BILLHOOK_ key of a Flask config; an unknown one raises ConfigError."""
        known = {setting.name.upper() for setting in fields(cls)}
        for key in config:
            name = key.removeprefix(PREFIX)
            if key.startswith(PREFIX) and name not in known:
                found = difflib.get_close_matches(name, known, n=1)  # without their common prefix
                near = "".join(f"did you mean {PREFIX}{option_name}? " for option_name in found)
                raise ConfigError(f"{key} is no option of billhook: {near}`billhook options` lists them")
        values = {
            option.attribute: option.parse(option.key, config.get(option.key, option.default))
            for option in OPTIONS
        }
        for option in OPTIONS:  # errors and commands show the values of these options
            if not option.secret and any(mark in str(values[option.attribute]) for mark in SECRET_MARKS):
                raise ConfigError(f"{option.key} looks like a secret: put secrets into BILLHOOK_SECRETS")
        if values["secrets"] and values["secrets_file"]:
            raise ConfigError("set BILLHOOK_SECRETS or BILLHOOK_SECRETS_FILE, not both: unset one of them")
        if values["api_refresh_token"] and values["api_refresh_token_file"]:
            raise ConfigError("set BILLHOOK_API_REFRESH_TOKEN or BILLHOOK_API_REFRESH_TOKEN_FILE, not both")
        return cls(**values)

    def read_secrets(self, path: str | None = None) -> tuple[str, ...]:
        """Read the signing secrets in `path`, else in BILLHOOK_SECRETS_FILE, else in BILLHOOK_SECRETS.

        `path` is what a command's --secret-file names.
        """
        if path is not None:
            return read_secrets_file(path, "--secret-file")
        return self.secrets if self.secrets_file is None else read_secrets_file(self.secrets_file)


OPTIONS = tuple(Option(f"{PREFIX}{setting.name.upper()}", **setting.metadata) for setting in fields(Settings))
"""Every option, in the order of `billhook options`."""


def from_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Select the BILLHOOK_ variables of an environment, for a Flask config."""
    return {
        key: value
        for key, value in environ.items()
        if key.startswith(PREFIX) and not key.startswith(NOT_OPTIONS)
    }


def read_secrets_file(path: str, key: str = "BILLHOOK_SECRETS_FILE") -> tuple[str, ...]:
    """Read the secrets in a file: PEM blocks kept whole, else one a line; blank and # lines are skipped.

    `key` is what names the file. Raises ConfigError.
    """
    text = read_secret_file(key, path)
    secrets: list[str] = []
    block: list[str] = []
    for number, line in enumerate((raw.strip() for raw in text.splitlines()), 1):
        if block or line.startswith("-----BEGIN "):
            block.append(line)
            if line.startswith("-----END "):
                secrets.append("\n".join(block) + "\n")
                block = []
        elif _LINE_OF_ENV_FILE.match(line):
            raise ConfigError(
                f"{key} {path!r} has NAME=value on line {number}, as an .env file has: write "
                "the secret alone on its line, without a name"
            )
        elif line and not line.startswith("#"):
            secrets.append(line)
    if block:
        raise ConfigError(f"{key} {path!r} holds a PEM block without its END line")
    return tuple(secrets)
