"""Operations: a request line, the models of what comes in and goes out, and the function between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from billhook.resources import Resource
from billhook.sandbox.limits import USUAL_BYTES

if TYPE_CHECKING:
    from billhook.sandbox.sandbox import Sandbox
    from billhook.sandbox.transaction import Transaction

__all__ = ["Call", "Group", "Operation"]


_OWN = "/_sandbox"
"""What the paths begin with that are not the specification's."""

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Call(Generic[B]):
    """A request that has passed the gate, read and found to be well-formed."""

    tx: Transaction
    given: B
    """The body, or the query where there is no body: an instance of the operation's model."""
    path: Mapping[str, str]
    sandbox: Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One endpoint.

    `takes` is the model of the body (POST, PUT) or of the query (GET, DELETE), `gives` that of the answer.
    `writes`: its transaction may change something. `open`: it needs no bearer token.
    """

    method: str
    path: str
    function: Callable[[Call[Any]], Resource | bytes | None]
    takes: type[Resource] | None = None
    gives: type[Resource] | None = None
    writes: bool = True
    open: bool = False
    reads_bytes: int | None = USUAL_BYTES
    """How much of a body is read, and a longer one is refused before it is; None: as much as of any."""
    max_bytes: int | None = None
    """How long a body may be that was read; None: as long."""
    errors: tuple[int, ...] = ()
    """Statuses that it may answer besides those that all may."""

    @property
    def has_body(self) -> bool:
        return self.method in ("POST", "PUT") and self.takes is not None

    @property
    def needs_body(self) -> bool:
        """Must a body be sent? The sandbox's own operations take none as {}, where no field is required."""
        if self.takes is None or not self.has_body:
            return False
        needed = any(field.is_required() for field in self.takes.model_fields.values())
        return needed or not self.path.startswith(_OWN)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The operations of one of the specification's headings, or of the sandbox's own."""

    tag: str
    prefix: str = ""
    operations: list[Operation] = field(default_factory=list)
    name: str | None = None
    """What its operations' ids begin with, where another group has the tag as well; else the tag does."""

    def operation(
        self, method: str, path: str, **facts: Any
    ) -> Callable[[Callable[[Call[Any]], Any]], Callable[[Call[Any]], Any]]:
        """Decorate the function that does `method path`; `facts` are the other fields of Operation."""
        facts.setdefault("writes", method != "GET")

        def remember(function: Callable[[Call[Any]], Any]) -> Callable[[Call[Any]], Any]:
            self.operations.append(
                Operation(method=method, path=self.prefix + path, function=function, **facts)
            )
            return function

        return remember
