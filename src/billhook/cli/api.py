"""`billhook api`: the read commands, made from the client's operations.

A command's arguments and options are the parameters of the client's method. Its help is the beginning of the
method's docstring, and the descriptions of the query's fields.
"""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import click

from billhook.cli.api_calls import limit_option, open_client, print_items, print_one
from billhook.cli.params import TEXT, TIME, as_json, flag, moment, option
from billhook.client.operations import GROUPS, OPERATIONS
from billhook.clock import format_time
from billhook.errors.program import in_program
from billhook.resources import MAX_PAGE_EVENTS

_READS = (
    ("catalog-products list", "catalog_products.list", "--json | jq '.[].name'"),
    ("catalog-products get", "catalog_products.get", "prd_55"),
    ("contracts list", "contracts.list", "--customer-id cus_1042 --json"),
    ("credits list", "credits.list", "cus_1042 --limit 500 --json"),
    ("custom-fields list", "custom_fields.list", "--limit 200"),
    ("custom-fields get", "custom_fields.get", "cfd_4"),
    ("customers get", "customers.get_by_integration", "Salesforce 0015g00000XyZ"),
    ("events query", "events.query", "--since 7d --alias acme --json"),
    ("invoices list", "invoices.list", "--customer-id cus_1042 --status Overdue --since 30d"),
    ("invoices get", "invoices.get", "inv_3007"),
    ("plans get", "plans.get", "plan_3 --json"),
)
"""Each command, the method of the client that it calls, and the arguments of its example."""

_OPTION_NAMES = {
    "billing_status": "status",
    "customer_alias": "alias",
    "end_time": "until",
    "event_name": "name",
    "issued_after": "since",
    "issued_before": "until",
    "start_time": "since",
}
"""The options that are not called as their parameters."""


@click.group()
def api() -> None:
    """Read from the service's API: customers, contracts, plans, products, invoices, credits, events.

    The commands need the options BILLHOOK_API_URL, BILLHOOK_API_CLIENT_ID and BILLHOOK_API_REFRESH_TOKEN (or
    its _FILE), and the extra billhook[client]. To change data, use billhook.client in a program.

    \b
    Examples:
      billhook api login
      billhook api invoices list --status Overdue
      billhook api invoices get inv_3007 --json
    """


@api.command()
def login() -> None:
    """Check the credentials. Prints when the access token expires, and never the token.

    \b
    Example:
      billhook api login
    """
    with open_client() as client:
        ends_at = client.auth.login()
    click.echo(f"the credentials are valid; the access token expires at {format_time(ends_at)} UTC")


def _add_reads() -> None:
    """Add the commands of `_READS` in their groups."""
    groups: dict[str, click.Group] = {}
    for line, method, arguments in _READS:
        name, _, verb = line.partition(" ")
        example = in_program(f"billhook api {line} {arguments}")
        if name not in groups:
            doc = inspect.getdoc(GROUPS[method.partition(".")[0]])
            groups[name] = click.Group(name, help=f"{doc}\n\n\b\nExample:\n  {example}")
        groups[name].add_command(_command(verb, method, example))
        api.add_command(groups[name])
    groups["customers"].add_command(consumptions)
    groups["events"].add_command(aggregate)


def _command(name: str, method: str, example: str) -> click.Command:
    group, _, attribute = method.partition(".")
    function = getattr(GROUPS[group], attribute)
    parameters = inspect.signature(function).parameters

    def read(as_json: bool, limit: int | None = None, **values: Any) -> None:
        if "end_time" in values:
            values["end_time"] = values["end_time"] or datetime.now(UTC)
        if limit is not None and method == "events.query":
            values["limit"] = min(limit + 1, MAX_PAGE_EVENTS)  # the size of a page: no more than needed
        with open_client() as client:
            found = attrgetter(method)(client)(**values)
            if limit is None:
                print_one(found, as_json)
            else:
                print_items(group, found, limit, as_json)

    params = [_param(each, method) for each in parameters.values() if each.name not in ("self", "limit")]
    summary = (inspect.getdoc(function) or "").partition(".")[0]
    text = f"{summary}.\n\n\b\nExample:\n  {example}"
    command = click.Command(name, params=params, callback=read, help=text)
    return as_json(limit_option(command) if "limit" in parameters else command)


def _param(parameter: inspect.Parameter, method: str) -> click.Parameter:
    is_time = "datetime" in parameter.annotation
    if not is_time and parameter.kind is not parameter.KEYWORD_ONLY:
        return click.Argument([parameter.name], type=TEXT)
    name = _OPTION_NAMES.get(parameter.name, parameter.name.replace("_", "-"))
    text = OPERATIONS[method].request.model_fields[parameter.name].description
    text += " An age (2h, 7d) or ISO 8601." if is_time else ""
    until_now = parameter.name == "end_time"
    return click.Option(
        [f"--{name}", parameter.name],
        type=TIME if is_time else TEXT,
        required=parameter.default is parameter.empty and not until_now,
        help=f"{text} Default: now." if until_now else text,
    )


@click.command()
@click.argument("customer_id", type=TEXT)
@moment("--since", "Start of the period", required=True)
@option("--until", "End of the period: an age or ISO 8601. Default: now.", TIME)
@option(
    "--meter KEY=EVENTNAME meters",
    "A meter: a key for its figures and the name of the events it counts. May be repeated.",
    required=True,
    multiple=True,
)
@option("--group-by TEXT", "What to group by. The specification does not list the values.", required=True)
@flag("--fill-dates", "Include dates without events.")
@as_json
def aggregate(
    customer_id: str,
    since: datetime,
    until: datetime | None,
    meters: tuple[str, ...],
    group_by: str,
    fill_dates: bool,
    as_json: bool,
) -> None:
    """Aggregate a customer's usage over a period.

    \b
    Example:
      billhook api events aggregate cus_1042 --since 30d --meter calls=api_call --group-by day
    """
    # Split at the first "=": a key has none, the name of a user's event may.
    pairs = [meter.partition("=") for meter in meters]
    wrong = next(("".join(pair) for pair in pairs if not (pair[0] and pair[2])), None)
    if wrong is not None:
        raise click.UsageError(f"--meter {wrong!r} is not KEY=EVENTNAME, such as calls=api_call")
    request = {
        "customer_id": customer_id,
        "period": {"start_time": since, "end_time": until or datetime.now(UTC)},
        "meters": [{"key": key, "event_name": name} for key, _, name in pairs],
        "group_by": group_by,
        **({"fill_dates": True} if fill_dates else {}),
    }
    with open_client() as client:
        print_one(client.events.aggregate(request), as_json)


@click.command()
@click.argument("customer_id", type=TEXT, required=False)
@option("--alias", "The customer's alias, instead of CUSTOMER_ID.")
@as_json
def consumptions(customer_id: str | None, alias: str | None, as_json: bool) -> None:
    """Show how much of each product a customer has used.

    \b
    Example:
      billhook api customers consumptions --alias acme
    """
    if (customer_id is None) == (alias is None):
        raise click.UsageError("give either CUSTOMER_ID or --alias")
    with open_client() as client:
        if alias is not None:
            products = client.customers.products_consumptions_by_alias(alias)
        else:
            products = client.customers.products_consumptions(customer_id or "")
    print_items("consumptions", iter(products), len(products), as_json)


_add_reads()
