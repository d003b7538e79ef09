"""On PYTHONPATH this folder hides pysqlite3: the inbox is then opened with Python's own library."""

raise ImportError("hidden by the tests")
