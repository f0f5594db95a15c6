"""The table of metrics: what is in it, in the documentation, and on a page as Prometheus's own library reads it."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.telemetry import Counters, Latencies, MetricsPage
from holdfast.telemetry.metrics import OF_COUNTERS, STORE_REQUESTS, STORE_UP, Metric, Type, all_metrics

PAGE = Path(__file__).parents[3] / "docs/metrics.md"
_NO_METRIC = {"requests"}  # the histogram of requests to stores has these


def test_every_metric_has_its_row_in_the_documentation_and_no_other_has() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        (each.name, each.type.value, ", ".join(f"`{label}`" for label in each.labels) or "–", each.help)
        for each in all_metrics()
    ]


def test_every_counter_has_a_metric() -> None:
    assert set(OF_COUNTERS) == {field.name for field in fields(Counters)} - _NO_METRIC


@pytest.mark.parametrize("metric", all_metrics(), ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"(holdfast|process)(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.type is Type.COUNTER)
    if metric.type is Type.HISTOGRAM:
        assert metric.name.endswith("_seconds")
    assert not {"path", "file", "name", "object", "user", "uid", "pid"} & set(metric.labels)


def test_a_page_is_read_as_it_was_meant() -> None:
    latencies = Latencies(2, (1000, 1_000_000))
    for nanoseconds in (1000, 1001, 5_000_000):
        latencies.observe(1, nanoseconds)
    histogram = latencies.histogram(1)
    assert histogram is not None
    page = MetricsPage()
    page.add(STORE_UP, 1, "checkpoints")
    page.add(STORE_UP, 0, 'a "quoted" \\ name')
    page.add(STORE_REQUESTS, histogram, "checkpoints", "GET", "ok")
    up, requests = text_string_to_metric_families(page.text())
    assert [(each.labels["store"], each.value) for each in up.samples] == [("checkpoints", 1), ('a "quoted" \\ name', 0)]
    buckets = {each.labels["le"]: each.value for each in requests.samples if each.name.endswith("_bucket")}
    assert buckets == {"1e-06": 1, "0.001": 2, "+Inf": 3}
    (total,) = (each.value for each in requests.samples if each.name.endswith("_sum"))
    assert math.isclose(total, 0.005002001)
    assert (up.type, requests.type) == ("gauge", "histogram")


def test_what_threads_hand_over_is_counted_when_it_is_taken_over() -> None:
    latencies = Latencies(1, (1000,))
    latencies.hand_over(0, 5)
    assert latencies.histogram(0) is None
    latencies.take_over()
    found = latencies.histogram(0)
    assert found is not None
    assert (found.total, found.buckets) == (1, [(1e-06, 1)])
