"""The figures of an inbox: the names that programs of users import."""

from billhook.inbox.watching.handler_backlogs import HandlerBacklog as HandlerBacklog
from billhook.inbox.watching.handler_backlogs import read_handler_backlogs as read_handler_backlogs
from billhook.inbox.watching.overview import Backlog as Backlog
from billhook.inbox.watching.overview import HandlerFigures as HandlerFigures
from billhook.inbox.watching.overview import InboxState as InboxState
from billhook.inbox.watching.overview import Overview as Overview
from billhook.inbox.watching.overview import PeriodFigures as PeriodFigures
from billhook.inbox.watching.overview import TypeFigures as TypeFigures
from billhook.inbox.watching.overview import read_overview as read_overview
from billhook.inbox.watching.overview import read_periods as read_periods
from billhook.inbox.watching.overview import read_state as read_state
from billhook.inbox.watching.overview import read_totals as read_totals
