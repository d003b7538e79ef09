"""Credits: credit products, pools with their ledger, grants and their schedules."""
