"""What engines share whose handlers run in the workers of a queue: a message carries a delivery's id."""
