"""Planning, claiming and settling runs, and the limits and leases that they are under."""
