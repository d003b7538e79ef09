"""The service's own interface, one module for each heading. Source: spec, "Endpoints"."""

__all__: list[str] = []
