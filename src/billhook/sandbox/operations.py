"""Operations: a method and a path, the models of request and response, and the function between them.

Models mark fields that the sandbox adds to the specification's objects, so that no client relies on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import ModuleType, NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from pydantic import ConfigDict

from billhook.resources import Resource
from billhook.sandbox.options import DEFAULT_BODY_BYTES
from billhook.sandbox.storage.database import Service, Transaction

_CONTROL_PREFIX = "/_sandbox"
_PARAMETER = re.compile(r"\{([A-Za-z]+)\}")
B = TypeVar("B")


class SandboxResource(Resource, register=False):
    """A model of the sandbox's own; the docstring of a field is its description in the OpenAPI document."""

    model_config = ConfigDict(use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class Services:
    """Functions of other parts of the sandbox, which a few operations need beyond their transaction."""

    # Functions instead of objects: operations are below the sandbox, which puts the parts together.

    issue_access_token: Callable[[datetime], tuple[str, datetime]]
    """Returns an access token and its expiry, for the sandbox's time."""
    move_clock: Callable[[Callable[[datetime], datetime]], tuple[datetime, int]]
    """Moves the clock to what the function makes of its time; returns the new time and the jobs run."""
    flush: Callable[[float], int]
    """Waits that many seconds at most until no delivery is due; returns how many still are."""
    api_token_changed: Callable[[str | None], None]
    """Receives the API token that is valid from now on; None if there is none."""


@dataclass(frozen=True, slots=True)
class Call(Generic[B]):
    """An authenticated, well-formed request, with the transaction that its operation runs in."""

    tx: Transaction
    request: B
    """The body, or the query where there is no body, as the operation's model `takes`."""
    path: Mapping[str, str]
    services: Services
    waited: Any = None
    """What the operation's `waits` returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One endpoint: method and path, the models of request and response, and the function between."""

    method: str
    path: str
    function: Callable[[Call[Any]], Resource | bytes | None]
    name: str
    """The second part of its operationId, after the name of the group."""
    takes: type[Resource] | None = None
    """The model of the body (POST, PUT) or of the query (GET, DELETE)."""
    gives: type[Resource] | None = None
    """The model of the response; None: an empty object."""
    writes: bool = True
    """True if its transaction may change something."""
    waits: Callable[[Any, Services], Any] | None = None
    """Called with the request before the transaction, which would hold a connection while it waits."""
    open: bool = False
    """True if it needs no access token."""
    reads_bytes: int | None = DEFAULT_BODY_BYTES
    """A longer body is refused before it is read; None: the limit of every request applies."""
    max_bytes: int | None = None
    """A longer body is refused after it was read, with the operation's own message; None: no such limit."""
    errors: tuple[int, ...] = ()
    """Error statuses beyond those of every operation, for the description."""

    @property
    def key(self) -> str:
        """Method and path, which no other operation has."""
        return f"{self.method} {self.path}"

    def run(self, service: Service, services: Services, request: Any, path: Mapping[str, str]) -> Any:
        """Run the operation for a request that is authenticated and parsed; return what its function does."""
        waited = None if self.waits is None else self.waits(request, services)
        with service.transaction(writes=self.writes) as tx:
            tx.cause = self.key
            return self.function(Call(tx, request, path, services, waited))

    @property
    def path_names(self) -> list[str]:
        """The names of the parameters in the path, in their order."""
        return _PARAMETER.findall(self.path)

    @property
    def has_body(self) -> bool:
        """True if the request has a body rather than a query."""
        return self.method in ("POST", "PUT") and self.takes is not None

    @property
    def needs_body(self) -> bool:
        """True if a body must be sent. The control API reads none as {} where no field is required."""
        if self.takes is None or not self.has_body:
            return False
        # Control operations are called by hand: a body that may be empty may be left out.
        has_required_field = any(field.is_required() for field in self.takes.model_fields.values())
        return has_required_field or not self.path.startswith(_CONTROL_PREFIX)


@dataclass(frozen=True, slots=True, eq=False)
class OperationGroup:
    """The operations of one heading, of the specification or of the control API."""

    tag: str
    prefix: str = ""
    operations: list[Operation] = field(default_factory=list)
    name: str | None = None
    """The first part of its operationIds, where several groups share a tag; None: the tag."""
    about: str = ""
    """What the operations of the tag are for; empty: another group of the tag says it."""

    def operation(
        self, method: str, path: str, *, name: str | None = None, **fields: Any
    ) -> Callable[[Callable[[Call[Any]], Any]], Callable[[Call[Any]], Any]]:
        """Decorate the function of `method path`; `name` defaults to the function's.

        Its parameter and result tell what it `takes` and `gives`; a function that returns bytes names what it
        gives. `fields` are the other fields of Operation; only GET does not write unless they say otherwise.
        """
        # A transaction that writes waits for all others that write, so GET must not be one.
        fields.setdefault("writes", method != "GET")

        def register(function: Callable[[Call[Any]], Any]) -> Callable[[Call[Any]], Any]:
            hints = get_type_hints(function)
            models = {"takes": get_args(hints["call"])[0], "gives": hints["return"]}
            known = {each: model for each, model in models.items() if model is not NoneType}
            self.operations.append(
                Operation(
                    method=method,
                    path=self.prefix + path,
                    function=function,
                    name=name or function.__name__,
                    **{**known, **fields},
                )
            )
            return function

        return register


def groups_of(*modules: ModuleType) -> tuple[OperationGroup, ...]:
    """Return the groups of operations of these modules, in their order."""
    return tuple(
        each for module in modules for each in vars(module).values() if isinstance(each, OperationGroup)
    )
