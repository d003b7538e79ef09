"""Counts by the hour of what happened, and how long anything is kept."""
