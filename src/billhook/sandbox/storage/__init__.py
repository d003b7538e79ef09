"""The sandbox's own storage. It shares nothing with the receiver's inbox."""
