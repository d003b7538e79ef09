"""`billhook metrics`: the metrics of the inbox in Prometheus' text format, printed or into a file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from billhook.cli.context import open_inbox
from billhook.cli.errors import CliError

__all__ = ["metrics"]


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Replace this file with them in one step, as node_exporter's textfile collector needs it.",
)
def metrics(output: Path | None) -> None:
    """Print the metrics of the inbox in Prometheus' text format.

    A web app serves the same with billhook.metrics.metrics_blueprint(), the standalone receiver with
    BILLHOOK_METRICS_TOKEN_FILE. Needs `pip install 'billhook[metrics]'`.

    \b
    Examples:
      billhook metrics
      billhook metrics --output /var/lib/node_exporter/billhook.prom
    """
    from billhook.metrics import metrics_text

    with open_inbox() as inbox:
        text = metrics_text(inbox)
    if output is None:
        click.echo(text, nl=False)
        return
    # Another name, which the collector does not read; then one step.
    written = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        written.write_text(text)
        written.replace(output)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise CliError(
            f"cannot write {output} ({error.strerror}): choose a file in a folder of yours"
        ) from None
