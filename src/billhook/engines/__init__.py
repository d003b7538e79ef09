"""Engines: where handlers run (inline, thread, worker, Celery, RQ), and the dispatcher that they share."""

from billhook.engines.dispatcher import Dispatcher as Dispatcher
from billhook.engines.inline import Engine as Engine
from billhook.engines.inline import InlineEngine as InlineEngine
from billhook.engines.thread import ThreadEngine as ThreadEngine
from billhook.engines.worker import Worker as Worker
