"""What docs/monitoring offers: rules, dashboards and a configuration, as a real Prometheus takes them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from holdfast.telemetry.metrics import Type, all_metrics
from tests.conftest import NodeFactory
from tests.support.daemons.node import wait_until
from tests.support.stores.servers import free_port

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs/monitoring"
DASHBOARDS = sorted(PLACE.glob("*.dashboard.json"))
_OF_PROMETHEUS = {"up"}
_NAME = re.compile(r"\b((?:holdfast|process)[a-z0-9_:]*|up)\b(?!\s*=)")
needs_prometheus = pytest.mark.skipif(
    not shutil.which("promtool"), reason="needs Debian's package prometheus, which only CI installs"
)


def known_names() -> set[str]:
    """Return the names of all series: those of the metrics, and those that the rules record."""
    names = set(_OF_PROMETHEUS)
    for metric in all_metrics():
        parts = ("_bucket", "_sum", "_count") if metric.type is Type.HISTOGRAM else ("",)
        names |= {metric.name + part for part in parts}
    return names | {rule["record"] for rule in rules() if "record" in rule}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PLACE / "holdfast.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions(board: Path) -> list[str]:
    panels = json.loads(board.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def used_names(expression: str) -> set[str]:
    return set(_NAME.findall(re.sub(r'"[^"]*"', '""', expression)))


def promtool(*arguments: object) -> str:
    result = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.stem)
def test_dashboards_show_metrics_that_exist(board: Path) -> None:
    used = set().union(*map(used_names, expressions(board)))
    assert len(used) > 10
    assert used <= known_names()


def test_dashboards_have_a_place_and_a_number_for_each_panel() -> None:
    assert len(DASHBOARDS) == 2
    for board in DASHBOARDS:
        panels = json.loads(board.read_text())["panels"]
        cells = [
            (x, y)
            for grid in (panel["gridPos"] for panel in panels)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        ]
        assert len(cells) == len(set(cells)), f"panels of {board.name} lie one above the other"
        assert len({panel["id"] for panel in panels}) == len(panels)


def test_rules_are_about_metrics_that_exist() -> None:
    assert set().union(*(used_names(rule["expr"]) for rule in rules())) <= known_names()


def test_each_alert_names_a_section_that_says_what_to_do() -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for rule in rules():
        if "alert" in rule:
            page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
            assert (page, anchor in anchors) == ("docs/operations.md", True), rule["alert"]


@needs_prometheus
def test_alerts_fire_when_they_are_meant_to_and_only_then() -> None:
    tested = (ROOT / "tests/monitoring/holdfast.rules.test.yml").read_text()
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert alerts == set(re.findall(r"alertname: (\w+)", tested))  # none is left untested
    assert "SUCCESS" in promtool("test", "rules", ROOT / "tests/monitoring/holdfast.rules.test.yml")


@needs_prometheus
def test_prometheus_understands_configuration_rules_and_the_expressions_of_the_dashboards(tmp_path: Path) -> None:
    promtool("check", "config", PLACE / "prometheus.yml")
    shown = [each for board in DASHBOARDS for each in expressions(board)]
    asked = [each.replace("$__rate_interval", "5m") for each in shown]
    made = [{"record": f"shown:{number}", "expr": each} for number, each in enumerate(asked)]
    (tmp_path / "shown.yml").write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": made}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", tmp_path / "shown.yml")


@needs_prometheus
def test_a_prometheus_scrapes_a_daemon_and_evaluates_the_rules(make_node: NodeFactory, workspace: Path) -> None:
    port = free_port()
    node = make_node(metrics__listen=f":{port}").start()
    (node.checkpoints / "file").write_bytes(b"bytes")
    with running_prometheus(workspace, f"127.0.0.1:{port}") as client:
        wait_until(lambda: value(client, 'holdfast_store_up{store="checkpoints"}') == 1)
        uploaded = 'holdfast_operation_duration_seconds_count{operation="flush", zone="checkpoints"}'
        wait_until(lambda: value(client, uploaded) == 1)  # a scrape that takes a second too long leaves a gap
        wait_until(
            lambda: [(each["health"], each["lastError"]) for each in get(client, "targets")["activeTargets"]] == [("up", "")]
        )
        wait_until(
            lambda: all(rule["health"] == "ok" for group in get(client, "rules")["groups"] for rule in group["rules"])
        )
        with node.client() as daemon:
            text = daemon.metrics()
        said = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (said.returncode, said.stdout + said.stderr) == (0, "")


def get(client: httpx.Client, route: str, **query: str) -> Any:
    return client.get(f"/api/v1/{route}", params=query).raise_for_status().json()["data"]


def value(client: httpx.Client, query: str) -> float | None:
    try:
        found = get(client, "query", query=query)["result"]
    except (httpx.ConnectError, httpx.HTTPStatusError):
        return None  # it is still starting
    return float(found[0]["value"][1]) if found else None


@contextmanager
def running_prometheus(directory: Path, target: str) -> Iterator[httpx.Client]:
    """Run Debian's Prometheus with the rules and the configuration of the documentation, for one target."""
    config = yaml.safe_load((PLACE / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(PLACE / "holdfast.rules.yml")]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/series",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"})
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client:
            yield client
    finally:
        process.terminate()
        process.wait(60)
