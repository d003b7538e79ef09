"""Engines: where handlers run (inline, thread, worker, Celery), and the dispatcher that they share."""

from billhook.engines.dispatcher import Dispatcher
from billhook.engines.inline import Engine, InlineEngine
from billhook.engines.thread import ThreadEngine
from billhook.engines.worker import Worker

__all__ = ["Dispatcher", "Engine", "InlineEngine", "ThreadEngine", "Worker"]
