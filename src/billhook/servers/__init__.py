"""What gunicorn runs: a worker with limits, and its answers to invalid requests."""
