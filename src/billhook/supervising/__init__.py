"""Processes that start others, watch them and start them anew."""
