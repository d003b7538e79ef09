"""The control API: the operations under /_sandbox, which are not in the specification."""
