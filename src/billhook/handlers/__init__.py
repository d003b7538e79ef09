"""Register and call handlers, and decide on retries. No SQL, no HTTP."""

from billhook.handlers.event_loop import CANCEL_SECONDS as CANCEL_SECONDS
from billhook.handlers.event_loop import EVENT_LOOPS as EVENT_LOOPS
from billhook.handlers.handler import ConnectedHandlers as ConnectedHandlers
from billhook.handlers.handler import Delivery as Delivery
from billhook.handlers.handler import Handler as Handler
from billhook.handlers.handler import HandlerFailure as HandlerFailure
from billhook.handlers.handler import Headers as Headers
from billhook.handlers.handler import StoredHeaders as StoredHeaders
from billhook.handlers.handler import call as call
from billhook.handlers.handler import connect as connect
from billhook.handlers.handlers import Handlers as Handlers
from billhook.handlers.retry import RetrySchedule as RetrySchedule
from billhook.handlers.retry import retry_after as retry_after
