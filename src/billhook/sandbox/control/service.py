"""The service as a whole: its clock, which can be moved ahead, its API tokens and its signing secrets.

Source: spec, "Authentication", rules 2 and 3.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, StrictBool, StrictStr, model_validator

from billhook.errors import FieldConflict, FieldMissing
from billhook.fields.types import Integer, UtcDatetime
from billhook.sandbox import scheduled_jobs, tokens
from billhook.sandbox.clock import MAX_TIME, CalendarDuration
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup, SandboxResource
from billhook.sandbox.webhooks import signing_secrets

CLOCK_GROUP = OperationGroup(
    "_sandbox/clock", prefix="/_sandbox/clock", about="Shows the sandbox's clock, and moves it ahead."
)
TOKENS_GROUP = OperationGroup("_sandbox/tokens", prefix="/_sandbox/tokens", about="Replaces API tokens.")
SECRETS_GROUP = OperationGroup(
    "_sandbox/secrets", prefix="/_sandbox/secrets", about="Rotates the signing secret."
)


class ClockMove(SandboxResource, register=False):
    """How far to move the clock ahead."""

    advance: Annotated[StrictStr | None, Field(examples=["P30D"])] = None
    """How far to move it: an ISO 8601 duration (P30D, P1M, PT36H), or 7d, 36h."""
    to: Annotated[UtcDatetime | None, Field(examples=[])] = None
    """Or the time to move it to, which must not be in the past."""

    # Both together would leave open which of them counts.
    @model_validator(mode="after")
    def _one_goal(self) -> ClockMove:
        if self.advance is None and self.to is None:
            raise FieldMissing("give advance (an ISO 8601 duration) or to (a moment)", "advance")
        if self.advance is not None and self.to is not None:
            raise FieldConflict("advance and to exclude each other: give one of them", "advance", "to")
        return self


class ClockMoved(SandboxResource, register=False):
    """The time after a move, and the number of jobs that it ran."""

    now: UtcDatetime
    """The sandbox's time."""
    steps: Annotated[Integer, Field(examples=[3])]
    """Number of scheduled jobs that fell due and were run."""


class ClockShown(SandboxResource, register=False):
    """The service's time."""

    now: UtcDatetime
    """The sandbox's time."""
    next_due_at: UtcDatetime | None = None
    """When the next scheduled job falls due."""


@CLOCK_GROUP.operation("GET", "", name="show")
def show_clock(call: Call[None]) -> ClockShown:
    """Get the service's time."""
    # The field is left out without a job: a field that is set to None is sent as null.
    first = scheduled_jobs.next_due_at(call.tx)
    return ClockShown(now=call.tx.now) if first is None else ClockShown(now=call.tx.now, next_due_at=first)


# writes=False: each job has had a transaction of its own. The clock gets a function instead of a moment:
# `advance` counts from the end of a move that is still running.
@CLOCK_GROUP.operation(
    "POST", "", name="move", writes=False, errors=(503,),
    waits=lambda request, services: services.move_clock(lambda now: _target(request, now)),
)  # fmt: skip
def move_clock(call: Call[ClockMove]) -> ClockMoved:
    """Move the clock ahead, running every scheduled job that falls due, in the order of time."""
    now, steps = call.waited
    return ClockMoved(now=now, steps=steps)


def _target(request: ClockMove, now: datetime) -> datetime:
    # Jobs that have run cannot be undone, so the clock never goes back.
    if request.to is not None and request.to < now:
        raise invalid_request("the clock never goes back: give a time in the future", "to")
    try:
        target = request.to or CalendarDuration.parse(request.advance or "").after(now)
    except ValueError as error:
        raise invalid_request(f"advance is {error}: it has no sign and no space", "advance") from None
    except OverflowError:  # beyond the calendar, so beyond MAX_TIME, too
        target = datetime.max.replace(tzinfo=UTC)
    if target > MAX_TIME:
        name = "to" if request.advance is None else "advance"
        raise invalid_request(f"the clock goes up to the year {MAX_TIME.year}", name)
    return target


class NewToken(SandboxResource, register=False):
    """A new API token. It is shown only here."""

    # repr=False keeps the token out of logs and of pytest's output.
    refresh_token: Annotated[StrictStr, Field(repr=False)]
    """What POST /login takes as refreshToken."""


@TOKENS_GROUP.operation("POST", "", name="rotate")
def rotate_api_token(call: Call[None]) -> NewToken:
    """Create an API token and revoke the previous one, which cannot log in any more.

    Access tokens issued for the previous one stay valid until their hour is over.
    """
    token = tokens.rotate(call.tx)
    # Otherwise Sandbox.api_token would still return the revoked one.
    call.services.api_token_changed(token)
    return NewToken(refresh_token=token)


class Rotation(SandboxResource, register=False):
    """How to rotate the secret."""

    overlap: Annotated[StrictBool, Field(examples=[True])] = False
    """True to sign with the previous secret as well, until the next rotation."""


class Rotated(SandboxResource, register=False):
    """The new secret. It is shown only here."""

    signing_secret: Annotated[StrictStr, Field(repr=False)]
    """What receivers verify with: the secret, or the public key of a pair."""
    key_id: StrictStr | None = None
    """The key's id, where deliveries name it."""


@SECRETS_GROUP.operation("POST", "/rotate", name="rotate")
def rotate_signing_secret(call: Call[Rotation]) -> Rotated:
    """Sign with a new secret from now on; with `overlap` also with the previous one."""
    signer = signing_secrets.current_signer(call.tx)
    # Signing with the new secret alone would break receivers that rely on the overlap.
    if call.request.overlap and not signer.scheme.separator:
        raise invalid_request(
            f"a delivery signed by {signer.scheme.name} carries one signature only: give the new secret to "
            "the receivers beside the old one, and rotate without overlap",
            "overlap",
        )
    secret = signing_secrets.rotate(call.tx, overlap=call.request.overlap)
    if isinstance(secret, str):
        return Rotated(signing_secret=secret)
    # A mapping has one entry: signing needs exactly one key.
    ((key_id, text),) = secret.items()
    return Rotated(signing_secret=text, key_id=key_id)
