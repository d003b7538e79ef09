"""What a delivery costs in CPU before it is stored: reading, verifying and envelope checks.

    python tests/bench/delivery_rules.py [--rounds 9]

Calls a bare Flask view and billhook's as WSGI apps in this process, in turn, with the same signed request,
and prints the difference of their CPU times. Storing is left out: the inbox's `put` gives a receipt at once.
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from measuring import BODY, options, save, spread
from werkzeug.test import EnvironBuilder

from billhook.extension import get_state
from billhook.inbox import PutStatus, Receipt
from support.signing import signed

CALLS = 2_000


def main() -> None:
    """Measure and print."""
    from apps import bare, durable  # after `measuring`, by which they find `support`

    given = options(__doc__, rounds=9)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BENCH_FOLDER"] = folder
        billhook = durable()
        get_state(billhook).inbox.put = lambda *_: Receipt(PutStatus.ACCEPTED, 1, "InvoiceApproved")  # type: ignore[method-assign]
        pairs = [(_microseconds(bare()), _microseconds(billhook)) for _ in range(given.rounds)]
    before, after = zip(*pairs, strict=True)
    save(given, {"bare": before, "billhook": after})
    print(f"bare view  {statistics.median(before):5.0f} us of CPU a request")
    print(f"billhook   {statistics.median(after):5.0f} us")
    print(f"difference {spread([more - less for less, more in pairs], 0)} us")


def _microseconds(app: Callable[..., Any]) -> float:
    builder = EnvironBuilder("/webhooks/billing", method="POST", headers=signed(BODY, "InvoiceApproved"))
    environ = {**builder.get_environ(), "CONTENT_LENGTH": str(len(BODY))}
    statuses = set()
    start = time.process_time()
    for _ in range(CALLS):
        answer = app(
            {**environ, "wsgi.input": io.BytesIO(BODY)}, lambda status, _headers: statuses.add(status)
        )
        b"".join(answer)
        answer.close()
    elapsed = time.process_time() - start
    if statuses != {"200 OK"}:
        sys.exit(f"answered {statuses}")
    return elapsed / CALLS * 1e6


if __name__ == "__main__":
    main()
