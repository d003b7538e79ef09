"""A source: one sender, how it signs, and the secrets it may use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from billhook.basics.callables import describe_kind
from billhook.basics.type_names import ANY_TYPE_NAME, TYPE_NAME, is_path
from billhook.errors import ConfigError, MissingSecret
from billhook.signing.scheme import Keys, Scheme, Secret, Secrets
from billhook.signing.standard_webhooks import StandardWebhooks

DEFAULT_SOURCE = "default"
RECONCILE_SOURCE = "reconcile"
"""The source of the synthetic deliveries that `billhook reconcile --inject` stores; no sender has it."""
TYPE_HEADER = "X-Webhook-Type"
"""The header that names the event type, where neither the source nor the options name another."""
_NO_TYPES = re.compile(
    "accept(-.*)?|authorization|connection|content-.*|cookie|date|expect|forwarded|from|host|origin|referer|te|"
    "trailer|transfer-encoding|upgrade|user-agent|via|x-forwarded-.*|x-real-ip|proxy-authorization",
    re.IGNORECASE,
)
"""Headers of HTTP and of proxies: none of them is a type."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Source:
    """A sender of deliveries, received at `<url_prefix>/<name>`.

    `secrets` are listed newest first; two of them overlap while they are rotated. Where the sender names its
    key, they are {key id: key}, or a list of such mappings. `tolerance_seconds`
    bounds the time of signing on both sides of now. `type_header` is the header that names the event type; by
    default the one of BILLHOOK_TYPE_HEADER. `type_field` is instead the field of the JSON body that names it:
    "type", or "event.type" for one in the object `event`; a worker reads it, not the receiver. Raises
    ConfigError, MissingSecret or WeakSecret.
    """

    name: str
    scheme: Scheme = field(default_factory=StandardWebhooks)
    secrets: Secrets = field(default=(), repr=False)
    tolerance_seconds: int = 300
    type_header: str | None = None
    type_field: str | None = None
    type_names: re.Pattern[str] = field(init=False, repr=False, compare=False)
    """What counts as a type in the header."""
    secret_list: Sequence[Secret] = field(init=False, repr=False, compare=False)
    """The secrets, newest first, each a text or a mapping of one key id."""
    keys: Keys = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ConfigError(f"a source is named {self.name!r}: use 1 to 64 letters, digits, '-' and '_'")
        if self.name == RECONCILE_SOURCE:
            raise ConfigError(
                f"a source is named {self.name!r}, which is the name of synthetic deliveries: choose another"
            )
        if not isinstance(self.scheme, Scheme):
            raise ConfigError(
                f"source {self.name!r}: scheme is {describe_kind(self.scheme)}: give a scheme of "
                "billhook.signing, as scheme=TimestampedHMAC()"
            )
        if not (isinstance(self.tolerance_seconds, int | float) and 1 <= self.tolerance_seconds <= 86_400):
            raise ConfigError(
                f"source {self.name!r}: tolerance_seconds={self.tolerance_seconds!r} must be 1 to 86400"
            )
        if self.type_header is not None and not _NAME.fullmatch(self.type_header):
            raise ConfigError(
                f"source {self.name!r}: type_header={self.type_header!r} is no name of a header, such as "
                "X-GitHub-Event"
            )
        header = self.type_header or TYPE_HEADER
        if self.type_field is not None:
            self._check_type_field()
        elif _NO_TYPES.fullmatch(header) or header.lower() in map(str.lower, self.scheme.headers):
            raise ConfigError(
                f"source {self.name!r}: {header} names no event type, it has a meaning of its own: in "
                "type_header or BILLHOOK_TYPE_HEADER, name the header in which the sender says the type"
            )
        secret_list = self._listed_secrets()
        if not secret_list:
            raise MissingSecret(self.name)
        is_own = header.lower() != TYPE_HEADER.lower()
        object.__setattr__(self, "type_names", ANY_TYPE_NAME if is_own else TYPE_NAME)
        # Loaded once, at start: a wrong secret must not show up at the first delivery. The class is frozen.
        object.__setattr__(self, "secret_list", secret_list)
        object.__setattr__(self, "keys", self.scheme.load(secret_list))

    def _listed_secrets(self) -> list[Secret]:
        if isinstance(self.secrets, str | bytes) or not isinstance(self.secrets, Iterable):
            kind = describe_kind(self.secrets)
            raise ConfigError(
                f"source {self.name!r} has {kind} for secrets: give a list, secrets=[...], or for keys with "
                "ids secrets={key id: key}"
            )
        given = [self.secrets] if isinstance(self.secrets, Mapping) else self.secrets
        return [
            one
            for secret in given
            for one in (
                [{key_id: secret[key_id]} for key_id in secret] if isinstance(secret, Mapping) else [secret]
            )
        ]

    def _check_type_field(self) -> None:
        if not is_path(self.type_field):
            raise ConfigError(
                f"source {self.name!r}: type_field={self.type_field!r} is no field of a JSON body, such as "
                '"type", or "event.type" for one in the object event'
            )
        if self.type_header is not None:
            raise ConfigError(
                f"source {self.name!r} has type_header={self.type_header!r} and "
                f"type_field={self.type_field!r}: the type is in one of them, leave the other out"
            )
        if self.scheme.signs_type:
            raise ConfigError(
                f"source {self.name!r}: its scheme signs the event type, which is in a header then: name "
                "that in type_header, and leave type_field out"
            )
