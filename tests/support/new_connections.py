"""Connections that are opened at once, and then send signed deliveries, each as soon as the last is answered.

Run as a program, so that it shares no interpreter with the test: `python new_connections.py PORT CONNECTIONS
SECONDS` prints what each connection saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
GIVE_UP_SECONDS = 30
BODY = b'{"date":"2026-01-15T09:30:00Z","invoiceId":"inv_1"}'


@dataclass
class Seen:
    """What the senders saw: seconds from the moment that all connections were begun."""

    first_answers: list[float] = field(default_factory=list)
    """When the first answer of each connection came."""
    later_seconds: list[float] = field(default_factory=list)
    """How long each delivery after the first of its connection took."""
    ahead: int = 0
    """How many answers the connection with most of them had had when the last first answer came."""
    refused: int = 0
    """Answers that were no 200, and connections that were closed or were never answered."""
    held: list[int] = field(default_factory=list)
    """How many connections each web process held once all were answered, and half of the time was over."""


class Sender(asyncio.Protocol):
    """One connection."""

    def __init__(
        self, all_senders: list[Sender], seen: Seen, begun_at: float, is_over: asyncio.Event
    ) -> None:
        from billhook.signing import StandardWebhooks

        self._scheme = StandardWebhooks()
        self._all, self._seen, self._is_over = all_senders, seen, is_over
        self._sent_at = begun_at
        self._answers = 0
        self._loop = asyncio.get_running_loop()
        self.is_done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        signed = self._scheme.sign(BODY, SECRET, event_type="InvoiceApproved", now=datetime.now(UTC))
        headers = {"Host": "receiver", "X-Webhook-Type": "InvoiceApproved", "Content-Length": len(BODY)}
        lines = [f"{name}: {value}" for name, value in (headers | signed).items()]
        head = "\r\n".join(["POST /webhooks/billing HTTP/1.1", *lines, "", ""])
        self._transport.write(head.encode() + BODY)

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        if not data.startswith(b"HTTP/1.1 200"):
            self._seen.refused += 1
        elif self._answers == 0:
            self._seen.first_answers.append(now - self._sent_at)
            self._seen.ahead = max(sender._answers for sender in self._all)
        else:
            self._seen.later_seconds.append(now - self._sent_at)
        self._answers += 1
        self._sent_at = now
        if self._is_over.is_set():
            self.is_done = True
            self._transport.close()
        else:
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.is_done:
            self._seen.refused += 1


async def _send(port: int, connections: int, seconds: float, server: int) -> Seen:
    seen = Seen()
    loop = asyncio.get_running_loop()
    begun_at = loop.time()
    is_over = asyncio.Event()
    senders: list[Sender] = []
    senders += [Sender(senders, seen, begun_at, is_over) for _ in range(connections)]
    opening = [
        asyncio.create_task(loop.create_connection(lambda sender=sender: sender, "127.0.0.1", port))  # type: ignore[misc]
        for sender in senders
    ]
    await asyncio.sleep(seconds / 2)
    # On a busy machine some wait to be accepted still, or for the processes that accept them.
    give_up_at = loop.time() + GIVE_UP_SECONDS
    while len(seen.first_answers) < len(senders) and loop.time() < give_up_at:
        await asyncio.sleep(0.01)
    seen.held = [_sockets_of(pid) for pid in _children(server)]
    await asyncio.sleep(seconds / 2)
    is_over.set()
    give_up_at = loop.time() + GIVE_UP_SECONDS
    while not all(sender.is_done for sender in senders) and loop.time() < give_up_at:
        await asyncio.sleep(0.05)
    for each in opening:
        with suppress(OSError):
            await each
    seen.refused += sum(not sender.is_done for sender in senders)
    return seen


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _sockets_of(pid: str) -> int:
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            found += str(each.readlink()).startswith("socket:")
    return found


def new_connections(port: int, connections: int, seconds: float, server: int) -> Seen:
    """Open them from another process, and send over them; `server` is the parent of the web processes."""
    command = [sys.executable, __file__, str(port), str(connections), str(seconds), str(server)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return Seen(**json.loads(output))


if __name__ == "__main__":
    port, connections, seconds, server = sys.argv[1:]
    with asyncio.Runner() as runner:
        found = runner.run(_send(int(port), int(connections), float(seconds), int(server)))
    sys.stdout.write(json.dumps(asdict(found)))
