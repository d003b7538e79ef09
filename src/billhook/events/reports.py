"""Events about reports, and the ping. Source: spec, "Events"."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from billhook.events.base import Event
from billhook.events.fields import RaisedAt

__all__ = ["MonthEndReport", "PingTest", "UnchargedEvents"]

_ReportId = Annotated[StrictStr, Field(description="Id of the report.", examples=["rep_2026_01"])]


class MonthEndReport(Event):
    """The report at the end of a month is ready.

    Source: spec, "Events". The body is shaped like UnchargedEvents': only the header tells them apart.
    """

    date: RaisedAt
    report_id: _ReportId


class UnchargedEvents(Event):
    """Some usage was counted by no meter.

    Source: spec, "Events". The body is shaped like MonthEndReport's: only the header tells them apart.
    """

    date: RaisedAt
    report_id: _ReportId


class PingTest(Event):
    """A test of whether the endpoint can be reached; it says nothing else.

    Source: spec, "Events".
    """
