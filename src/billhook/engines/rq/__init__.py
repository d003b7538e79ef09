"""The RQ engine: handlers run in the workers of the user's own RQ queue."""

from billhook.engines.rq.engine import RQEngine as RQEngine
