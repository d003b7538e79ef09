"""Credits: granting them, and drawing from them."""
