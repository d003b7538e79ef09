"""The name by which configurations of gunicorn choose the worker: `billhook.gunicorn_worker.AsgiWorker`."""

from billhook.servers.asgi_worker import AsgiWorker as AsgiWorker
