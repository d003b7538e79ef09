"""What is wrong with options, secrets, inbox and handlers, and what to do: findings that change nothing.

`billhook doctor` and the dashboard's page of health show them.
"""

from __future__ import annotations

from billhook.doctor.examination import examine
from billhook.doctor.finding import LEVELS, Finding, Level

__all__ = ["LEVELS", "Finding", "Level", "examine"]
