"""deploy/prometheus-alerts.yml: each alert fires on series of its fault, and on none of a good service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.postgres import unavailable

RULES = Path(__file__).parents[2] / "deploy" / "prometheus-alerts.yml"
DAY = 24 * 60
GOOD = {
    "billhook_inbox_up": "1x2000",
    'billhook_workers{engine="worker"}': "2x2000",
    'billhook_deliveries_stored{state="dead"}': "0x2000",
    'billhook_deliveries_stored{state="quarantined"}': "0x2000",
    'billhook_deliveries_refused_total{source="default",cause="mismatch"}': "5x2000",
    'billhook_deliveries_refused_total{source="default",cause="missing"}': "0+50x2000",
    'billhook_deliveries_refused_total{source="default",cause="deadline"}': "0x2000",
    # A minute ago at each moment.
    "billhook_oldest_unfinished_timestamp_seconds": "0+60x2000",
    'billhook_last_delivery_timestamp_seconds{type="InvoiceApproved"}': "0+60x2000",
    'billhook_last_delivery_timestamp_seconds{type="PingTest"}': "0+60x2000",
}
FAULTS = {
    "BillhookInboxDown": {"billhook_inbox_up": "1x1900 0x100"},
    "BillhookWorkerGone": {'billhook_workers{engine="worker"}': "2x1900 0x100"},
    "BillhookDeliveriesWait": {"billhook_oldest_unfinished_timestamp_seconds": "0x2000"},
    "BillhookDeliveriesDead": {'billhook_deliveries_stored{state="dead"}': "0x1900 1x100"},
    "BillhookDeliveriesQuarantined": {'billhook_deliveries_stored{state="quarantined"}': "0x1900 3x100"},
    "BillhookDeliveriesRefused": {
        'billhook_deliveries_refused_total{source="default",cause="mismatch"}': "0x1900 0+1x100"
    },
    "BillhookNotStored": {
        'billhook_deliveries_refused_total{source="default",cause="deadline"}': "0x1990 1x10"
    },
    "BillhookHandlerPaused": {'billhook_handler_paused_timestamp_seconds{handler="book"}': "60x2000"},
    "BillhookSilent": {
        'billhook_last_delivery_timestamp_seconds{type="InvoiceApproved"}': "0x2000",
        'billhook_last_delivery_timestamp_seconds{type="PingTest"}': "60x2000",
    },
    "BillhookTypeSilent": {'billhook_last_delivery_timestamp_seconds{type="InvoiceApproved"}': "0x2000"},
}


@pytest.fixture
def promtool():
    return shutil.which("promtool") or unavailable("no promtool: Debian's package prometheus has it")


def judged(promtool, tmp_path, series, firing):
    """Have promtool evaluate the rules at the end of these series, and compare what fires."""
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)]
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": "1995m",
                        "exp_samples": expected,
                    }
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))  # YAML includes JSON
    return subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )


def test_the_rules_are_valid(promtool):
    checked = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
def test_nothing_fires_for_a_good_service(promtool, tmp_path):
    result = judged(promtool, tmp_path, GOOD, [])

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("alert", FAULTS)
def test_an_alert_fires_on_its_fault_and_no_other_does(promtool, tmp_path, alert):
    also = {"BillhookTypeSilent"} if alert == "BillhookSilent" else set()

    result = judged(promtool, tmp_path, GOOD | FAULTS[alert], {alert} | also)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_a_worker_that_stopped_in_order_is_gone_too(promtool, tmp_path):
    """It takes its row out of the inbox, so that the metric has no series at all."""
    series = {name: values for name, values in GOOD.items() if not name.startswith("billhook_workers")}

    result = judged(promtool, tmp_path, series, {"BillhookWorkerGone"})

    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_is_tested():
    assert re.findall(r"alert: (\w+)", RULES.read_text()) == list(FAULTS)
