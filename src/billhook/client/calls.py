"""One call of the API: authenticated, repeated where that is safe, and its answer read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from pydantic import SecretStr

from billhook.client.answers import MESSAGE_CHARACTERS, error_of, model_of, object_of
from billhook.client.auth import LOGIN, Grant, Login, grant_of
from billhook.client.operation import Operation
from billhook.client.redaction import Redactor
from billhook.client.retries import Budget, Retrier
from billhook.client.transport import Answer, Transport
from billhook.clock import Clock
from billhook.errors import ApiError, AuthenticationFailed, UnexpectedResponse
from billhook.resources import LoginRequest, LoginResponse
from billhook.resources.base import Resource
from billhook.wire.header_value import fits_header

__all__ = ["Calls"]

R = TypeVar("R", bound=Resource)


class Calls:
    """What all groups of operations share. Safe for any number of threads."""

    def __init__(
        self,
        transport: Transport,
        retrier: Retrier,
        redactor: Redactor,
        clock: Clock,
        refresh_token: SecretStr,
    ) -> None:
        self._transport = transport
        self._retrier = retrier
        self._redactor = redactor
        self._clock = clock
        self._refresh_token = refresh_token
        self._login = Login(self._fetch_grant, clock)

    def read(
        self,
        operation: Operation,
        model: type[R],
        *values: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> R:
        """Call `operation`, with `values` for the parameters of its path, and read the answer as `model`.

        Raises ApiError; ValueError for a value that cannot be in a path.
        """
        answer = self._answer(operation, values, query, body)
        return model_of(operation, answer, model, self._redactor)

    def plain(self, operation: Operation, body: bytes) -> dict[str, Any]:
        """As `read`, for an answer whose shape is not shown: its plain values, {} for none."""
        return object_of(operation, self._answer(operation, (), None, body), self._redactor)

    def cleaned(self, text: str) -> str:
        """A text of an answer as it may be shown: cut, printable, and without the client's secrets."""
        return self._redactor.clean(text, MESSAGE_CHARACTERS)

    def log_in(self) -> datetime:
        """Fetch a new access token now; returns when it ends."""
        budget = self._retrier.budget()
        return self._login.renewed(self._login.current, budget).ends_at

    def _answer(
        self,
        operation: Operation,
        values: tuple[str, ...],
        query: Mapping[str, str] | None,
        body: bytes | None,
    ) -> Answer:
        address = operation.address(values)
        budget = self._retrier.budget()
        return self._retrier.run(
            operation,
            lambda: self._authenticated(
                operation,
                lambda bearer: self._attempt(operation, address, query or {}, body, bearer, budget),
                budget,
            ),
            budget,
        )

    def _authenticated(
        self, operation: Operation, attempt: Callable[[SecretStr], Answer | ApiError], budget: Budget
    ) -> Answer:
        """One attempt; a second one with a new token if the service does not take the one that we have.

        That is no repetition: a request whose token was refused has done nothing.
        """
        grant = self._login.grant(budget)
        result = attempt(grant.token)
        if _is_refused(result):
            result = attempt(self._login.renewed(grant, budget).token)
        if isinstance(result, ApiError):
            raise result
        return result

    def _attempt(
        self,
        operation: Operation,
        address: str,
        query: Mapping[str, str],
        body: bytes | None,
        bearer: SecretStr | None,
        budget: Budget,
    ) -> Answer | ApiError:
        request = self._transport.request(operation, address, query, body, bearer)
        answer = self._transport.exchange(operation, request, budget)
        return error_of(operation, answer, self._redactor, self._clock.now()) or answer

    def _fetch_grant(self, budget: Budget) -> Grant:
        answer = self._retrier.run(LOGIN, lambda: self._log_in_once(budget), budget)
        granted = model_of(LOGIN, answer, LoginResponse, self._redactor)
        token = SecretStr(granted.access_token)
        self._redactor.learn(token)
        del answer  # its body is the token
        if not fits_header(token.get_secret_value()):
            problem = "its access token cannot be sent in a header"
            raise UnexpectedResponse(LOGIN.name, problem, status=200, excerpt="")
        return grant_of(token, granted.expires_in, self._clock.now())

    def _log_in_once(self, budget: Budget) -> Answer:
        body = LoginRequest(refresh_token=self._refresh_token.get_secret_value()).to_request()
        request = self._transport.request(LOGIN, LOGIN.path, {}, body, None)
        del body
        answer = self._transport.exchange(LOGIN, request, budget)
        error = error_of(LOGIN, answer, self._redactor, self._clock.now())
        if error is not None:
            raise error
        return answer


def _is_refused(result: Answer | ApiError) -> bool:
    """Is it the access token that was not taken? Source: spec, "Authentication", rule 4."""
    return isinstance(result, AuthenticationFailed) or (
        isinstance(result, UnexpectedResponse) and result.status == 401
    )
