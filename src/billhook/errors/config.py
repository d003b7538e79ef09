"""What is wrong with how the app is set up, found at start."""

from __future__ import annotations

from billhook.errors.root import BillhookError

__all__ = [
    "ConfigError",
    "DuplicateHandlerName",
    "HandlerSignature",
    "InboxElsewhere",
    "LateRegistration",
    "MissingExtra",
    "MissingSecret",
    "SchemaForbidden",
    "SchemaMismatch",
    "WeakSecret",
]


class ConfigError(BillhookError):
    """The app is set up wrongly. The text names the value seen, the limit and the remedy."""


class MissingSecret(ConfigError):
    """A source has no secret, so nothing could be verified: refuse to start."""

    def __init__(self, source: str) -> None:
        self.source = source
        super().__init__(
            f"source {source!r} has no secret: set BILLHOOK_SECRETS or BILLHOOK_SECRETS_FILE, "
            "or pass secrets=[...] to Source"
        )


class WeakSecret(ConfigError):
    """A secret is too short to keep anybody out."""

    def __init__(self, length_bytes: int, minimum_bytes: int) -> None:
        self.length_bytes = length_bytes
        self.minimum_bytes = minimum_bytes
        super().__init__(
            f"a secret of {length_bytes} bytes is too short: use at least {minimum_bytes} random bytes"
        )


class DuplicateHandlerName(ConfigError):
    """Two handlers share a name; the name is stored with each run, so it must be unique."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"two handlers are named {name!r}: give one of them another name=")


class HandlerSignature(ConfigError):
    """A handler cannot be called with (event) or (event, delivery)."""

    def __init__(self, handler: str, signature: str) -> None:
        self.handler = handler
        self.signature = signature
        super().__init__(
            f"handler {handler!r} has the signature {signature}: it must take (event) or (event, delivery)"
        )


class LateRegistration(ConfigError):
    """A handler was registered after the app began to handle deliveries, and would have missed some."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"handler {name!r} was registered after init_app: import its module before Billhook.init_app"
        )


class SchemaMismatch(ConfigError):
    """The inbox's schema is not the one this version of billhook was written for."""

    def __init__(self, found: str | None, expected: str) -> None:
        self.found = found
        self.expected = expected
        remedy = (
            "run `billhook db upgrade`"
            if found is None or found < expected
            else "it is newer than this billhook: upgrade the package"
        )
        super().__init__(f"the inbox has schema {found or 'none'}, this billhook needs {expected}: {remedy}")


class InboxElsewhere(SchemaMismatch):
    """The inbox on PostgreSQL is in the schema where an earlier billhook kept it."""

    def __init__(self, former: str, schema: str, expected: str) -> None:
        self.former = former
        self.schema = schema
        self.found = None
        self.expected = expected
        ConfigError.__init__(
            self,
            f"the inbox is in the schema {former!r}, where an earlier billhook kept it, and now belongs into "
            f"{schema!r}: run `billhook db upgrade`, which moves it",
        )


class SchemaForbidden(ConfigError):
    """The role may not make the inbox's schema, or move the inbox there; `statement` is SQL that does."""

    def __init__(self, role: str, schema: str, statement: str) -> None:
        self.role = role
        self.schema = schema
        self.statement = statement
        super().__init__(
            f"the role {role!r} may not put the inbox into the schema {schema!r}: have an administrator run: "
            f"{statement}; then run `billhook db upgrade` again"
        )


class MissingExtra(ConfigError):
    """An optional dependency is needed and not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.feature = feature
        self.extra = extra
        super().__init__(f"{feature} needs an optional dependency: pip install 'billhook[{extra}]'")
