"""What is wrong with options, secrets, inbox and handlers, and what to do: findings that change nothing.

`billhook doctor`, `billhook check` and the dashboard's page of health show them.
"""
