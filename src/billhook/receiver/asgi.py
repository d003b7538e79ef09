"""AsgiReceiver: take one delivery from an ASGI scope to its response: read, verify, store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from typing import Any

from billhook.errors import BodyIncomplete, BodyTooLarge, InboxUnavailable, RequestError, SignatureError
from billhook.inbox import Inbox
from billhook.receiver.body import DRAIN_BYTES, check_length, declared_length
from billhook.receiver.headers import RequestHeaders
from billhook.receiver.intake import Intake
from billhook.receiver.responses import WebhookResponse, method_not_allowed
from billhook.receiver.time_limit import TimeLimit
from billhook.signing.source import Source

__all__ = ["AsgiReceiver", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiReceiver:
    """Receive deliveries on an event loop: a request that waits for its commit occupies no thread."""

    def __init__(
        self, intake: Intake, inbox: Inbox, context: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        """`context` is entered around signal observers and engines that take their time, in a thread."""
        self._intake = intake
        self._inbox = inbox
        self._context = context
        self._body_limit = TimeLimit(intake.body_seconds)

    async def receive(self, source: Source, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept one request to the path of a source and send its response."""
        if scope["method"] == "POST":
            try:
                response = await self._accept(source, scope, receive)
            except MemoryError:  # handled here, because the frames that held the body are released
                response = self._intake.out_of_memory(source)
        else:
            response = method_not_allowed()
        with suppress(OSError):  # the client has gone; what is stored stays stored
            await send(_head(response))
            # A server drops the body of a response to HEAD, but may log a line about each.
            body = b"" if scope["method"] == "HEAD" else response.body
            await send({"type": "http.response.body", "body": body})
        if response.status in (405, 413):  # refused before the body was read
            await self._drain(receive)

    async def _accept(self, source: Source, scope: Scope, receive: Receive) -> WebhookResponse:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._intake.deadline_seconds
        try:
            headers = RequestHeaders.from_asgi(scope["headers"])
            # Read before any check: unread body bytes would be parsed as the connection's next request.
            body = await self._read_body(headers, receive)
            delivery = self._intake.verify(source, headers, body)
            receipt = await self._inbox.put_async(delivery, deadline - loop.time())
        except (RequestError, SignatureError, InboxUnavailable) as error:
            return await self._run(self._intake.rejected, source, error)
        return await self._run(self._intake.stored, delivery, receipt)

    async def _read_body(self, headers: RequestHeaders, receive: Receive) -> bytes:
        """Return the exact bytes of the body. Raises BodyTooLarge or BodyIncomplete."""
        expected = declared_length(headers.get("content-length", ""), self._intake.max_body_bytes)
        body: bytes | bytearray = b""
        try:
            with self._body_limit.of(asyncio.current_task()) as limit:  # type: ignore[arg-type]  # within a task
                while True:
                    message = await receive()
                    limit.check()
                    if message["type"] != "http.request":
                        raise BodyIncomplete("the client disconnected")
                    piece = message.get("body", b"")
                    if not body:
                        body = piece
                    else:
                        # Not a list: chunks of two bytes would take thirty times their size.
                        if isinstance(body, bytes):
                            body = bytearray(body)
                        body += piece
                    if len(body) > self._intake.max_body_bytes:
                        raise BodyTooLarge(f"over {self._intake.max_body_bytes} bytes")
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise BodyIncomplete(f"no complete body within {self._intake.body_seconds:g} s") from None
        check_length(len(body), expected, self._intake.max_body_bytes)
        return bytes(body)  # the same object, if it came in one piece

    async def _drain(self, receive: Receive) -> None:
        """Read the rest of a rejected body up to a limit, so that its sender reads the response.

        A sender that is still writing would see a reset instead. The server closes the connection beyond it.
        """
        length = 0
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(self._intake.body_seconds):
                while length <= DRAIN_BYTES:
                    message = await receive()
                    length += len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return

    async def _run(self, answer: Callable[..., WebhookResponse], *arguments: Any) -> WebhookResponse:
        """Call a method of the intake; in a thread if observers or the engine would block the loop."""
        if not self._intake.may_block:
            return answer(*arguments)
        return await asyncio.to_thread(self._run_in_context, answer, *arguments)

    def _run_in_context(self, answer: Callable[..., WebhookResponse], *arguments: Any) -> WebhookResponse:
        with self._context():
            return answer(*arguments)


@lru_cache(128)  # the 503 alone has 56 values of Retry-After
def _head(response: WebhookResponse) -> MutableMapping[str, Any]:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(response.body)).encode()),
        *((name.lower().encode(), text.encode()) for name, text in response.headers),
    ]
    return {"type": "http.response.start", "status": response.status, "headers": headers}
