"""The Celery engine: handlers run in the workers of the user's Celery app."""

from billhook.engines.celery.app import find_celery
from billhook.engines.celery.engine import CeleryEngine

__all__ = ["CeleryEngine", "find_celery"]
