"""What the publisher and the sweep need of a broker, whichever queue it is."""

from __future__ import annotations

TASK = "billhook.handle"
"""The name of the task, or of the job, of all messages."""
BROKER_TIMEOUT_SECONDS = 5.0
"""How long the broker may take for any one answer."""


class Broker:
    """A broker, over a connection that is opened at first use and kept.

    For one thread, and never across a fork. `publish` and `queue_length` may raise any error of the broker's
    client; call `disconnect` then.
    """

    def publish(self, delivery_id: int) -> None:
        """Send a message once, and return when the broker has confirmed it."""
        raise NotImplementedError

    def queue_length(self) -> int:
        """Return the messages, of any task, in the queue that ours are sent to."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Drop the connection without a closing handshake: the broker may not answer."""

    def close(self) -> None:
        """Close the connection in order."""
