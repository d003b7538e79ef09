"""Finding, counting and following deliveries, without changing anything."""
