"""Errors of the framework: the root, and those of configuration, deliveries, the inbox and handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from billhook.errors.program import in_program, install_command, no_variables

if TYPE_CHECKING:
    from datetime import datetime


class BillhookError(Exception):
    """The root: catching it catches everything that billhook raises on purpose."""

    def __str__(self) -> str:
        # Here, because the text of an error comes out in logs, pages, commands and traces.
        return in_program(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle calls the class with the text alone; most classes here take other arguments.
        return _rebuilt, (type(self), self.args), self.__dict__


def _rebuilt(cls: type[BillhookError], args: tuple[Any, ...]) -> BillhookError:
    return cls.__new__(cls, *args)


class ConfigError(BillhookError):
    """The app is set up wrongly. The text names the value seen, the limit and the remedy."""


class MissingSecret(ConfigError):
    """A source has no secret, so nothing could be verified: billhook refuses to start."""

    def __init__(self, source: str, secrets_file: str | None = None) -> None:
        """`secrets_file` is the file that was read and holds none."""
        self.source, self.secrets_file = source, secrets_file
        remedy = (
            "set BILLHOOK_SECRETS or BILLHOOK_SECRETS_FILE (in a Flask app before init_app), or pass "
            f"secrets=[...] to Source{no_variables()}"
            if secrets_file is None
            else f"write it into BILLHOOK_SECRETS_FILE, {secrets_file!r}, which holds none"
        )
        super().__init__(f"source {source!r} has no secret: {remedy}")


class WeakSecret(ConfigError):
    """A secret is too short to be safe against guessing."""

    def __init__(self, length_bytes: int, minimum_bytes: int) -> None:
        self.length_bytes, self.minimum_bytes = length_bytes, minimum_bytes
        super().__init__(
            f"a secret of {length_bytes} bytes is too short: use at least {minimum_bytes} random bytes"
        )


class DuplicateHandlerName(ConfigError):
    """Two handlers share a name; the name is stored with each run, so it must be unique."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"two handlers are named {name!r}: give one of them another name=")


class HandlerSignature(ConfigError):
    """A handler cannot be called with (event) or (event, delivery), or is declared for other arguments."""

    def __init__(
        self, handler: str, signature: str, remedy: str = "it must take (event) or (event, delivery)"
    ) -> None:
        self.handler, self.signature = handler, signature
        super().__init__(f"handler {handler!r} has the signature {signature}: {remedy}")


class LateRegistration(ConfigError):
    """A handler was registered after the app began to handle deliveries, and would have missed some."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"handler {name!r} was registered after init_app: import its module before Billhook.init_app"
        )


class SchemaMismatch(ConfigError):
    """The inbox's schema is not the one this version of billhook needs.

    `stores`: it is newer, and this version may still store deliveries in it, and do nothing else. `what` was
    found, and `remedy` is what to do; it says that `billhook db upgrade` helps only where that upgrades it.
    """

    def __init__(self, found: str | None, expected: str, *, stores: bool = False) -> None:
        self.found, self.expected, self.stores = found, expected, stores
        remedy = "it is newer than this billhook: upgrade the package"
        if found is None or found < expected:
            remedy = "run `billhook db upgrade`"
        elif stores:
            remedy = "it is newer than this billhook, which stores deliveries only: upgrade the package"
        self._say(f"the inbox has schema {found or 'none'}, this billhook needs {expected}", remedy)

    def _say(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(f"{what}: {remedy}")


class UnreleasedSchema(SchemaMismatch):
    """The inbox was made by a billhook before its first release: no upgrade leads from there.

    A column that it lacks shows it: its revision may be that of a release.
    """

    def __init__(self, place: str, found: str, expected: str, missing: str) -> None:
        super().__init__(found, expected)
        self.place, self.missing = place, missing
        self._say(
            f"the inbox {place} has schema {found} without {missing}",
            "it is of an unreleased billhook, which no release upgrades: have that billhook handle what "
            "waits in it, then name an empty database in BILLHOOK_INBOX_URL",
        )


class ForeignFile(SchemaMismatch):
    """The SQLite file of the inbox is another program's database."""

    def __init__(self, path: str, tables: str, expected: str) -> None:
        self.path, self.tables = path, tables
        super().__init__(None, expected)
        what = f"{path} holds tables of something else ({tables}) and no inbox"
        self._say(what, "give the inbox a file of its own in BILLHOOK_INBOX_URL")


class UnfitEncoding(SchemaMismatch):
    """The inbox's database on PostgreSQL cannot store every text."""

    def __init__(self, place: str, encoding: str) -> None:
        self.encoding = encoding
        super().__init__(encoding, "UTF8")
        self._say(
            f"the database of the inbox, {place}, has the encoding {encoding}, which cannot hold every text",
            "make one with createdb --encoding=UTF8 --template=template0 --locale=C.UTF-8 NAME, and name it "
            "in BILLHOOK_INBOX_URL",
        )


class SchemaForbidden(ConfigError):
    """The role may not create or use the inbox's schema; `statement` is SQL that allows it."""

    def __init__(self, role: str, schema: str, statement: str) -> None:
        self.role, self.schema, self.statement = role, schema, statement
        self.remedy = f"have an administrator run: {statement}; then run `billhook db upgrade` again"
        super().__init__(f"the role {role!r} may not put the inbox into the schema {schema!r}: {self.remedy}")


class MissingExtra(ConfigError):
    """An optional dependency is needed and not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.feature, self.extra = feature, extra
        super().__init__(f"{feature} needs the extra {extra}: {install_command(extra)}")


class DeliveryError(BillhookError):
    """One delivery cannot be accepted or parsed."""


class RequestError(DeliveryError):
    """The HTTP request is unusable, no matter who sent it."""

    status: ClassVar[int] = 400
    cause: ClassVar[str] = "request"


class BodyIncomplete(RequestError):
    """The body ended or stalled before it was complete."""

    cause = "body_incomplete"


class BodyTooLarge(RequestError):
    """The body is larger than BILLHOOK_MAX_BODY_BYTES."""

    status, cause = 413, "body_too_large"


class UnsupportedEncoding(RequestError):
    """The body is compressed; the signature covers the plain bytes, so no encoding is accepted."""

    status, cause = 415, "content_encoding"


class SignatureError(DeliveryError):
    """The sender could not be verified. The cause is logged; the response never reveals it."""

    cause: ClassVar[str] = "signature"
    age_seconds: float | None = None
    """How long ago it was signed, negative if ahead of this clock; of a signed time outside the tolerance."""


class SignatureMissing(SignatureError):
    """A header that the scheme needs is absent."""

    cause = "missing"


class SignatureMalformed(SignatureError):
    """A signature header is present but does not have the scheme's form."""

    cause = "malformed"


class SignatureMismatch(SignatureError):
    """None of the given signatures matches the body under any secret."""

    cause = "mismatch"


class TimestampTooOld(SignatureError):
    """Signed longer ago than the tolerance allows."""

    cause = "stale"


class TimestampInFuture(SignatureError):
    """Signed further in the future than the tolerance allows."""

    cause = "future"


class PayloadError(DeliveryError):
    """A verified delivery whose body cannot be parsed as its type.

    `details` is a list of {"loc", "msg", "type"} objects without the input's values.
    """

    def __init__(self, message: str, details: list[dict[str, Any]] | None = None) -> None:
        self.details = details or []
        super().__init__(message)


class InvalidJSON(PayloadError):
    """The body is not the strict JSON that billhook reads."""


class InvalidPayload(PayloadError):
    """The body is JSON, but not an object of the type's model."""


class ModelFailed(PayloadError):
    """An event model of the user's own raised something: the text quotes it, and it is the cause."""


class InboxError(BillhookError):
    """The inbox cannot do what was requested."""


class InboxUnavailable(InboxError):
    """Storage failed or cannot be reached; nothing was acknowledged, so the sender must retry."""

    cause: ClassVar[str] = "storage"


class DeadlinePassed(InboxUnavailable):
    """The commit did not finish within BILLHOOK_DEADLINE_SECONDS."""

    cause = "deadline"


class BacklogFull(InboxUnavailable):
    """BILLHOOK_BACKLOG_LIMIT deliveries are waiting already."""

    cause = "backlog"


class Draining(InboxUnavailable):
    """The process is shutting down and accepts no more deliveries."""

    cause = "draining"


class OutOfResources(InboxUnavailable):
    """The process has no memory left or may not start a thread; a limit of the system has to be raised."""

    cause = "resources"


class IllegalTransition(InboxError):
    """A state may not follow another; the table is in billhook.inbox.tables.states."""

    def __init__(self, kind: str, before: str, after: str) -> None:
        self.kind, self.before, self.after = kind, before, after
        super().__init__(f"a {kind} in state {before!r} cannot become {after!r}")


class HandlerControl(BillhookError):
    """Raised by a handler to choose how its run ends."""


class Retry(HandlerControl):
    """Run this handler again: after `after_seconds`, or not before the time `at`, else by the retry schedule.

    With `at`, an aware datetime, the attempt does not count. A later time than 31 days from now is taken as
    that; a handler may do it 30 times in a run, and fails the next time.
    """

    def __init__(
        self, reason: str = "", *, after_seconds: float | None = None, at: datetime | None = None
    ) -> None:
        if at is not None and after_seconds is not None:
            raise ValueError("choose one of after_seconds and at")
        if at is not None and at.utcoffset() is None:
            raise ValueError(f"at must have a time zone, got the naive {at.isoformat()}: it names no moment")
        if after_seconds is not None and not 0 <= after_seconds <= 31 * 86_400:
            raise ValueError(f"after_seconds must be between 0 and 31 days, got {after_seconds!r}")
        self.after_seconds, self.at = after_seconds, at
        super().__init__(reason or "the handler asked for another attempt")


class PutOffTooOften(BillhookError):
    """A handler raised `Retry(at=…)` more often than it may in one run."""

    def __init__(self, times: int) -> None:
        self.times = times
        super().__init__(
            f"the handler has put this run off {times} times with Retry(at=…), and may not again"
        )


class Discard(HandlerControl):
    """Do not run this handler again for this delivery, and do not record a failure."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler discarded the delivery")
