"""The dashboard: an app's deliveries, failures and handlers in a browser."""

from __future__ import annotations

from billhook.dashboard.dashboard import Dashboard, Permission

__all__ = ["Dashboard", "Permission"]
