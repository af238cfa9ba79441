"""Dashboard and alerts name metrics, labels and values that exist, and leave nothing out."""

import json
import re
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from promql import check, names, values

from poolsm_runners.health.vitals import Phase
from poolsm_runners.metrics.catalogue import METRICS

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "poolsm.json"
RULES = ROOT / "deploy" / "prometheus" / "poolsm.rules.yml"
SOURCES = [*(ROOT / "poolsm").rglob("*.py"), *(ROOT / "runners").rglob("*.py")]

dashboard = json.loads(DASHBOARD.read_text())
panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
alerts = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
TARGETS = [(panel["title"], target) for panel in panels for target in panel["targets"]]
EXPRESSIONS = [
    *(target["expr"] for _, target in TARGETS),
    *(note["expr"] for note in dashboard["annotations"]["list"]),
    *(alert["expr"] for alert in alerts),
]


@pytest.fixture(scope="module")
def words():
    """Every string literal of the program."""
    found = set()
    for path in SOURCES:
        found |= set(re.findall(r'"([\w-]+)"', path.read_text()))
    return found | set(Phase)


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=[title for title, _ in TARGETS])
def test_a_panel_shows_what_there_is(title, target):
    labels = check(target["expr"])
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_values_that_are_asked_for_are_the_programs_own(expression, words):
    for label, value in values(expression):
        if label not in {"job", "instance", "pool", "status"}:
            assert value in words, (label, value)


def test_every_metric_is_shown():
    shown = set().union(*(names(target["expr"]) for _, target in TARGETS))
    assert sorted(METRICS.keys() - shown) == []


def test_panels_lie_beside_each_other_and_use_the_variables():
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for one, other in combinations([panel["gridPos"] for panel in dashboard["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert variables == {"datasource", "job", "instance", "pool"}
    for _, target in TARGETS:
        assert target["datasource"]["uid"] == "${datasource}"
        assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables | {"__rate_interval"}
    for variable in dashboard["templating"]["list"][1:]:
        metric, label = re.fullmatch(
            r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"]
        ).groups()
        assert label in {*METRICS[metric].labels, "job", "instance"}
    assert all(panel["description"].endswith(".") for panel in panels)


@pytest.mark.parametrize("alert", alerts, ids=lambda alert: alert["alert"])
def test_an_alert_is_sound_and_says_what_to_do(alert):
    labels = check(alert["expr"])
    assert re.fullmatch(r"Poolsm[A-Z]\w+", alert["alert"])
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["annotations"].keys() == {"summary", "description"}
    for text in alert["annotations"].values():
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels, text
        assert "\n" not in text


def test_what_an_operator_must_be_woken_for_has_an_alert():
    wanted = {
        "PoolsmRunnerDown",
        "PoolsmLoopHangs",
        "PoolsmLogWriteFailing",
        "PoolsmListingStale",
        "PoolsmLossSuspected",
        "PoolsmPoolBelowMinimum",
        "PoolsmBreakerOpen",
        "PoolsmDeletionStuck",
        "PoolsmQuotaExceeded",
    }
    assert wanted <= {alert["alert"] for alert in alerts}


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("poolsm_pool_capcity", "no metric"),
        ('poolsm_pool_capacity{pol="a"}', "no label"),
        ("sum by (status) (poolsm_pool_capacity)", "no label"),
        ("rate(poolsm_pool_capacity[5m])", "is a gauge"),
        ("poolsm_anomalies_total", "is a counter"),
        ("rate(poolsm_tick_duration_seconds[5m])", "no metric"),
    ],
)
def test_the_check_finds_what_is_wrong(expression, fault):
    with pytest.raises(AssertionError, match=fault):
        check(expression)
