"""What the files of a deployment are made from: the app, and where it is to run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Self
from urllib.parse import urlsplit

from billhook.errors import ConfigError

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_PLACE = re.compile(r"/[A-Za-z0-9._/+@-]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_APP = re.compile(r"[A-Za-z0-9_./:(),=-]+")
_UNIT = re.compile(r"[A-Za-z0-9._@-]+\.service")
_BIND = re.compile(r"[A-Za-z0-9.]+:[0-9]{1,5}")


@dataclass(frozen=True)
class DeploymentPlan:
    """An app, and where it is to run. Raises ConfigError for what no file can have, and names the option."""

    name: str
    """Of units and files: NAME-web.service, /etc/NAME."""
    account: str
    folder: str
    venv: str
    host: str
    database: str
    path: str = "/webhooks/billing"
    bind: str = "127.0.0.1:8000"
    app: str | None = None
    """What `flask --app` names; None for the receiver that runs on its own."""
    target: str = "billhook.standalone:create_asgi_app()"
    """What gunicorn serves."""
    handlers: str = ""
    containers: bool = False
    unit: str | None = None
    """The unit that the app has already."""
    has_site: bool = False
    """Whether nginx has a site of the app already."""

    def __post_init__(self) -> None:
        rules: dict[str, tuple[re.Pattern[str], str]] = {
            "name": (_NAME, "lower-case letters, digits and hyphens, a letter first"),
            "account": (_NAME, "lower-case letters, digits and hyphens, a letter first"),
            "folder": (_PLACE, "an absolute path of letters, digits and ._/+@-"),
            "venv": (_PLACE, "an absolute path of letters, digits and ._/+@-"),
            "path": (_PLACE, "an absolute path of letters, digits and ._/+@-"),
            "host": (_HOST, "a host name, without https:// and without a port"),
            "bind": (_BIND, "HOST:PORT"),
            "app": (_APP, "what `flask --app` takes, without blanks and quotes"),
            "target": (_APP, "MODULE:APP or MODULE:FACTORY(), without blanks and quotes"),
            "unit": (_UNIT, "the name of a unit, as shop.service"),
        }
        for name, (pattern, meaning) in rules.items():
            value = getattr(self, name)
            if value is not None and not pattern.fullmatch(value):
                raise ConfigError(f"--{name} {value!r} cannot be used: give {meaning}")
        if self.account == "root":
            raise ConfigError("--account root cannot be used: give an account of the app's own")
        for name in ("database", "handlers"):
            if re.search(r"""['"\\\s$`]""", getattr(self, name)):
                raise ConfigError(
                    f"--{name} has a blank, a quote, $ or \\: write it in another way (%27 for ')"
                )
        try:
            url = urlsplit(self.database)
            has_password = url.password is not None or "password=" in url.query
        except ValueError as error:
            raise ConfigError(f"--database is no URL: {error}") from None
        if url.scheme not in ("sqlite", "postgresql+psycopg"):
            raise ConfigError("--database is not sqlite:////FILE or postgresql+psycopg://USER@HOST/NAME")
        if has_password:
            raise ConfigError(
                "--database has a password, which others could read: leave it out, "
                f"and write it into /etc/{self.name}/pgpass"
            )

    @property
    def own_app(self) -> bool:
        """Whether billhook is in a Flask app of the user's."""
        return self.app is not None

    @property
    def etc(self) -> str:
        """The folder of options and secrets."""
        return f"/etc/{self.name}"

    @property
    def is_postgresql(self) -> bool:
        """Whether the inbox is in PostgreSQL."""
        return self.database.startswith("postgresql")

    @property
    def state_folder(self) -> bool:
        """Whether the units need a folder for what they write."""
        return not self.own_app or not self.is_postgresql

    @property
    def command_words(self) -> str:
        """How a command of billhook's begins in a container's list of words."""
        return f'flask, --app, "{self.app}", billhook' if self.app else "billhook"

    @property
    def command(self) -> str:
        """How a command of billhook's begins."""
        return f"{self.venv}/bin/flask --app {self.app} billhook" if self.app else f"{self.venv}/bin/billhook"

    @property
    def shell_command(self) -> str:
        """The same for a shell."""
        return self.command.replace("(", "'('").replace(")", "')'")

    @property
    def wrapper(self) -> str:
        """The command that runs billhook's commands with the options and as the account of the services."""
        return self.name if self.name == "billhook" else f"{self.name}-billhook"

    @property
    def zone(self) -> str:
        """What nginx calls the app."""
        return "billhook"

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Return a plan that was written. Raises ConfigError."""
        types: dict[str, Callable[[Any], bool]] = {
            one.name: (lambda value: isinstance(value, bool))
            if one.type == "bool"
            else (lambda value: value is None or isinstance(value, str))
            for one in fields(cls)
        }
        if not isinstance(values, dict) or any(
            name not in types or not types[name](value) for name, value in values.items()
        ):
            raise ConfigError("deploy.json was not written by this version: run `billhook deploy init` again")
        try:
            return cls(**values)
        except TypeError:
            raise ConfigError("deploy.json lacks a value: run `billhook deploy init` again") from None


EXAMPLE = DeploymentPlan(
    name="billhook", account="billhook", folder="/opt/billhook", venv="/opt/billhook/venv",
    host="hooks.example.com", database="sqlite:////var/lib/billhook/billhook.db", handlers="myshop.billing",
)  # fmt: skip
"""What deploy/ of the repository has: the receiver that runs on its own."""
