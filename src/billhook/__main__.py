"""Run the command line: `python -m billhook` is `billhook`."""

from billhook.cli import main

main(prog_name="billhook")
