"""What operators do to deliveries: replaying, discarding, erasing, taking over; each is recorded."""
