"""The Celery engine: handlers run in the workers of the user's Celery app."""

from billhook.engines.celery.engine import CeleryEngine, find_celery

__all__ = ["CeleryEngine", "find_celery"]
