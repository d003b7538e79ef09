"""The tables of the inbox, what their rows are in Python, and what the two databases say differently."""
