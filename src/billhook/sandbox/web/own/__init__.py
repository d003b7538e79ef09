"""What the specification does not show, under /_sandbox: apart from the service's own interface."""

__all__: list[str] = []
