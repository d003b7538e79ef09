"""The text of an event is kept as it was sent. Source: spec, Event (ingested)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from billhook.fields import strict_json
from billhook.sandbox.billing.ingestion import RawEventBatch
from support.sandbox import Running
from support.usage_events import EVENTS, PATIENTLY


def test_the_text_of_each_event_says_what_was_sent(sandbox: Running) -> None:
    """SQLite splits a batch, also one whose keys are escaped."""

    @settings(PATIENTLY)
    @given(st.lists(EVENTS, min_size=1, max_size=5), st.sampled_from(['"events"', r'"ev\u0065nts"']))
    def check(sent: list[Any], key: str) -> None:
        body = f'{{"more": [1], {key}: {strict_json.dumps(sent).decode()}}}'
        batch = RawEventBatch.from_json(body.encode())
        with sandbox.sandbox.service.transaction(writes=False) as tx:
            texts = batch.texts(tx)
        both = zip(batch.events, texts, strict=True)
        # Whatever is no object is refused without a look at its text.
        objects: list[tuple[Any, str]] = [(event, text) for event, text in both if isinstance(event, dict)]
        assert [strict_json.loads(text.encode()) for _, text in objects] == [event for event, _ in objects]

    check()
