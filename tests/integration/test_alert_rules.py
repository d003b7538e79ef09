"""deploy/prometheus-alerts.yml: each alert fires on series of its fault, and on none of a good service."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from billhook.inbox.watching.judgement import CONDITIONS
from support.processes import run_command

RULES = Path(__file__).parents[2] / "deploy" / "prometheus-alerts.yml"
GOOD = {
    "billhook_inbox_up": "1x2000",
    'billhook_workers{engine="worker"}': "2x2000",
    'billhook_deliveries_stored{state="dead"}': "0x2000",
    'billhook_deliveries_stored{state="quarantined"}': "0x2000",
    'billhook_deliveries_refused_total{source="default",cause="mismatch"}': "0+1x2000",  # a stranger's
    'billhook_deliveries_total{source="default",type="PingTest",result="accepted"}': "0+1x2000",
    'billhook_deliveries_refused_total{source="default",cause="missing"}': "0+50x2000",
    'billhook_deliveries_refused_total{source="default",cause="deadline"}': "0x2000",
    'billhook_deliveries_stored{state="unread"}': "0x2000",
    'billhook_condition{name="crash-loop"}': "0x2000",
    'billhook_condition{name="waiting"}': "0x2000",
    'billhook_condition{name="workers-disagree"}': "0x2000",
    'billhook_attempts_total{handler="book",result="succeeded"}': "0+10x2000",
    'billhook_attempts_total{handler="book",result="failed"}': "0x2000",
    'billhook_attempt_duration_seconds_bucket{handler="book",le="0.5"}': "0+10x2000",
    'billhook_attempt_duration_seconds_bucket{handler="book",le="5"}': "0+10x2000",
    'billhook_attempt_duration_seconds_bucket{handler="book",le="+Inf"}': "0+10x2000",
    # A minute ago at each moment.
    "billhook_oldest_unfinished_timestamp_seconds": "0+60x2000",
    'billhook_last_delivery_timestamp_seconds{type="InvoiceApproved"}': "0+60x2000",
    'billhook_last_delivery_timestamp_seconds{type="PingTest"}': "0+60x2000",
}
FAULTS = {
    "BillhookInboxDown": {"billhook_inbox_up": "1x1900 0x100"},
    "BillhookWorkerGone": {'billhook_workers{engine="worker"}': "2x1900 0x100"},
    "BillhookDeliveriesWait": {'billhook_condition{name="waiting"}': "0x1900 1x100"},
    "BillhookDeliveriesDead": {'billhook_deliveries_stored{state="dead"}': "0x1900 1x100"},
    "BillhookDeliveriesQuarantined": {'billhook_deliveries_stored{state="quarantined"}': "0x1900 3x100"},
    "BillhookDeliveriesRefused": {
        'billhook_deliveries_refused_total{source="default",cause="mismatch"}': "0x1900 0+1x100",
        'billhook_deliveries_total{source="default",type="PingTest",result="accepted"}': "0+1x1900 1900x100",
    },
    "BillhookNotStored": {
        'billhook_deliveries_refused_total{source="default",cause="deadline"}': "0x1990 1x10"
    },
    "BillhookHandlerPaused": {'billhook_handler_paused_timestamp_seconds{handler="book"}': "60x2000"},
    "BillhookWorkersDisagree": {'billhook_condition{name="workers-disagree"}': "0x1900 1x100"},
    "BillhookSilent": {
        'billhook_last_delivery_timestamp_seconds{type="InvoiceApproved"}': "0x2000",
        'billhook_last_delivery_timestamp_seconds{type="PingTest"}': "60x2000",
    },
    "BillhookTypeSilent": {'billhook_last_delivery_timestamp_seconds{type="InvoiceApproved"}': "0x2000"},
    "BillhookWorkersRestart": {'billhook_condition{name="crash-loop"}': "0x1900 1x100"},
    "BillhookHandlerFails": {'billhook_attempts_total{handler="book",result="failed"}': "0x1900 0+10x100"},
    "BillhookHandlerSlow": {
        'billhook_attempt_duration_seconds_bucket{handler="book",le="0.5"}': "0+10x1950 19500x50"
    },
    "BillhookBacklogGrows": {'billhook_deliveries_stored{state="unread"}': "0x1900 0+100x100"},
}


def case(series, firing):
    """What promtool is to evaluate: the rules at the end of these series, and the alerts that then fire."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "1995m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)],
            }
        ],
    }


def judged(promtool, tmp_path, *cases):
    """Have promtool evaluate the rules in each case, and compare what fires."""
    test = {"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": cases}
    (tmp_path / "test.yml").write_text(json.dumps(test))  # YAML includes JSON
    command = [promtool, "test", "rules", "test.yml"]
    return run_command(command, cwd=tmp_path)


def test_the_rules_are_valid_and_every_alert_is_tested(promtool):
    checked = run_command([promtool, "check", "rules", str(RULES)])

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert re.findall(r"alert: (\w+)", RULES.read_text()) == list(FAULTS), "each has its series in FAULTS"


def test_each_rule_names_the_condition_that_it_mirrors_and_the_condition_names_the_rule():
    rules = re.findall(r"alert: (\w+).*?labels: {(.+?)}", RULES.read_text(), re.DOTALL)
    named = {alert: labels.rpartition("condition: ")[2] for alert, labels in rules if "condition" in labels}

    assert named == {one.alert: one.name for one in CONDITIONS if one.alert}
    assert {alert for alert, _ in rules} - named.keys() == {"BillhookInboxDown"}  # then nothing can be judged


@pytest.mark.slow
def test_each_alert_fires_on_its_fault_and_no_other_does(promtool, tmp_path):
    # A worker that stopped in order takes its row out of the inbox, so that its metric has no series at all.
    stopped = {name: values for name, values in GOOD.items() if not name.startswith("billhook_workers")}
    faults = [
        case(GOOD | series, {alert} | ({"BillhookTypeSilent"} if alert == "BillhookSilent" else set()))
        for alert, series in FAULTS.items()
    ]

    result = judged(promtool, tmp_path, case(GOOD, []), case(stopped, {"BillhookWorkerGone"}), *faults)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_control_an_alert_that_does_not_fire_is_noticed(promtool, tmp_path):
    result = judged(promtool, tmp_path, case(GOOD, {"BillhookInboxDown"}))

    assert result.returncode == 1
    assert "BillhookInboxDown" in result.stdout + result.stderr
