"""What the pages do with the sandbox: read it, and run the operations of its API without HTTP."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from billhook.sandbox.http.parsing import parse_body, parse_query
from billhook.sandbox.operations import Call, Operation, OperationGroup, Services
from billhook.sandbox.service import Service
from billhook.sandbox.storage.transaction import Transaction
from billhook.wire import strict_json

__all__ = ["OperationRunner"]


class OperationRunner:
    """Runs operations as the API does: the same models, the same transaction, the same function."""

    def __init__(self, service: Service, services: Services, groups: Sequence[OperationGroup]) -> None:
        self.service = service
        self._services = services
        self._operations = {operation.key: operation for group in groups for operation in group.operations}

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Run a transaction that only reads."""
        with self.service.transaction(writes=False) as tx:
            yield tx

    def run(self, key: str, body: Mapping[str, Any] | bytes | None = None, **path: str) -> Any:
        """Run the operation `key`, such as `POST /_sandbox/clock`, and return its result; SandboxError.

        `body` is the request as JSON, or as what is to be written so; or the query where there is no body.
        """
        operation = self._operations[key]
        request = self._request(operation, body)
        with self.service.transaction(writes=operation.writes) as tx:
            tx.cause = key
            return operation.function(Call(tx, request, path, self._services))

    def deliver(self, seconds: float = 1) -> None:
        """Wait for deliveries that are due: usually the next page shows their answers then."""
        self._services.flush(seconds)

    def summary(self, key: str) -> str | None:
        """Return what an operation does, in words; None for what is none."""
        operation = self._operations.get(key)
        described = None if operation is None else inspect.getdoc(operation.function)
        return None if described is None else described.partition("\n")[0].rstrip(".")

    def _request(self, operation: Operation, body: Mapping[str, Any] | bytes | None) -> Any:
        if operation.takes is None:
            return None
        if not operation.has_body:
            assert not isinstance(body, bytes), operation.key  # noqa: S101 - only operations with a body
            return parse_query(operation.takes, body or {})
        raw = body if isinstance(body, bytes) else strict_json.dumps(body or {})
        return parse_body(operation.takes, raw)
