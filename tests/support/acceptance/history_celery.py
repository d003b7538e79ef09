"""The Celery app of histories of real processes, with the broker and the queue that its environment names."""

from __future__ import annotations

import os

from celery import Celery

celery = Celery("history", broker=os.environ["ACCEPTANCE_BROKER"], set_as_current=False)
celery.conf.update(
    task_default_queue=os.environ["ACCEPTANCE_QUEUE"],
    broker_transport_options={"global_keyprefix": os.environ["ACCEPTANCE_QUEUE"] + ":"},
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
