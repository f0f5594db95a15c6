"""The pure parts of the benchmark: ratios by rounds, goals, the report as a file, the order of sides, counted requests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks import spark_plot
from tests.benchmarks.plot import drawn, position
from tests.benchmarks.report import Goal, Line, Report, Unit, decoded, figure, line, missed, ratio
from tests.benchmarks.requests import parsed
from tests.benchmarks.rows import Row, Site, Target, Values
from tests.benchmarks.runner import Measured, turned

AS_GOOD = Goal(peer="bindfs", at_least=0.7)
OURS = frozenset({"work"})


def a_line(values: dict[str, list[float]], unit: Unit = Unit.PER_SECOND, goal: Goal = AS_GOOD) -> Line:
    return line("create", "create", unit, values, OURS, {"work": goal})


def a_report(lines: list[Line]) -> Report:
    return Report(
        command="./run bench",
        began=1.0,
        seconds=2.0,
        rounds=5,
        machine={"kernel": "Linux 6.18"},
        targets={"bindfs": "bindfs -f SOURCE MOUNT"},
        notes=["data mode: daemon-io"],
        lines=lines,
    )


# --- ratios -----------------------------------------------------------------------------------------------------------


def test_a_ratio_compares_values_of_one_round() -> None:
    """The machine became ten times as fast after the first round, for both sides."""
    assert ratio([1, 10, 10], [2, 20, 20], more_is_better=True) == 0.5


def test_a_ratio_above_one_is_good_for_times_too() -> None:
    assert ratio([1, 1], [4, 4], more_is_better=False) == 4


def test_one_disturbed_round_does_not_move_the_median() -> None:
    assert ratio([10, 1, 10], [20, 200, 20], more_is_better=True) == 0.5


def test_there_is_no_ratio_without_two_values_of_a_round() -> None:
    assert ratio([], [1], more_is_better=True) is None
    assert ratio([1], [0], more_is_better=True) is None
    assert ratio([0], [1], more_is_better=False) is None


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=7), st.floats(0.1, 1e3))
def test_a_common_factor_is_the_ratio(peers: list[float], factor: float) -> None:
    ours = [factor * value for value in peers]
    assert ratio(ours, peers, more_is_better=True) == pytest.approx(factor)
    assert ratio(ours, peers, more_is_better=False) == pytest.approx(1 / factor)


# --- lines and goals --------------------------------------------------------------------------------------------------


def test_a_line_has_medians_and_ratios_to_all_peers() -> None:
    made = a_line({"ext4": [100, 110, 90], "bindfs": [10, 11, 9], "work": [8, 9, 7]})
    assert made.results["ext4"].median == 100
    assert made.results["ext4"].ratios == {}
    assert made.results["work"].ratios == {"ext4": pytest.approx(0.08, rel=0.05), "bindfs": pytest.approx(0.8, rel=0.05)}
    assert made.results["work"].met is True


def test_a_goal_that_is_missed_is_listed() -> None:
    met = a_line({"bindfs": [10], "work": [7]})
    not_met = a_line({"bindfs": [10], "work": [6]})
    assert missed([met, not_met]) == [(not_met, "work")]


def test_a_goal_may_be_a_limit() -> None:
    limit = Goal(at_most=150)
    assert a_line({"work": [150]}, Unit.MIB, limit).results["work"].met is True
    assert a_line({"work": [151]}, Unit.MIB, limit).results["work"].met is False


def test_a_goal_can_not_be_judged_without_its_peer() -> None:
    made = a_line({"ext4": [100], "work": [8]})
    assert made.results["work"].met is None
    assert missed([made]) == []


def test_goals_say_what_they_are() -> None:
    assert str(AS_GOOD) == "at least 0.7 of bindfs"
    assert str(Goal(at_most=1500)) == "at most 1,500"


def test_a_target_of_ours_is_no_peer_of_another_one() -> None:
    values = {"bindfs": [10.0], "work": [8.0], "checkpoints": [1.0]}
    made = line("create", "create", Unit.PER_SECOND, values, frozenset({"work", "checkpoints"}), {})
    assert made.results["work"].ratios.keys() == {"bindfs"}


@pytest.mark.parametrize(
    ("value", "text"), [(1234567.8, "1,234,568"), (100, "100"), (99.96, "100"), (12.345, "12.3"), (0.05417, "0.0542")]
)
def test_figures_have_three_digits_that_count(value: float, text: str) -> None:
    assert figure(value) == text


def test_a_goal_may_be_a_difference_to_a_peer() -> None:
    goal = Goal(peer="ext4", at_most_more=300)
    values = {"ext4": [1000.0, 2000.0, 1000.0], "work": [1200.0, 2290.0, 1900.0]}
    made = a_line(values, Unit.MILLISECONDS, goal).results["work"]
    assert made.more == {"ext4": 290}
    assert made.met is True
    assert a_line({**values, "work": [2000.0, 3000.0, 2000.0]}, Unit.MILLISECONDS, goal).results["work"].met is False
    assert a_line({"work": [1.0]}, Unit.MILLISECONDS, goal).results["work"].met is None
    assert str(goal) == "at most 300 more than ext4"


def test_where_a_row_has_a_main_value_its_goals_are_about_that_one() -> None:
    target = Target("work", Path("work"), Path("work"), "work", ours=True)
    row = Row("batch", "a batch", Unit.MILLISECONDS, (target,), _nothing, _no_values, goals={"work": Goal(at_most=1)})
    measured = Measured(row)
    measured.add(target, {"": 2.0, "part": 1.5})
    assert [(made.row, made.results["work"].met) for made in measured.lines()] == [("batch", False), ("batch: part", None)]


def test_the_parts_of_one_value_of_several_have_no_goals() -> None:
    target = Target("work", Path("work"), Path("work"), "work", ours=True)
    row = Row("restart", "a restart", Unit.MILLISECONDS, (target,), _nothing, _no_values, goals={"work": Goal(at_most=1)})
    measured = Measured(row)
    measured.add(target, {"warm": 2.0, "warm: planning": 1.5, "cold": 0.5})
    assert [(made.row, made.results["work"].met) for made in measured.lines()] == [
        ("restart: warm", False),
        ("restart: warm: planning", None),
        ("restart: cold", True),
    ]


def _nothing(site: Site) -> None:
    del site


def _no_values(site: Site) -> Values:
    del site
    return {}


# --- the plot ---------------------------------------------------------------------------------------------------------


def test_a_plot_is_whole_and_has_a_mark_for_each_ratio() -> None:
    made = a_line({"bindfs": [10, 12], "ext4": [4000, 4000], "work": [20, 24]})
    memory = line("memory", "memory", Unit.MIB, {"work": [10.0]}, OURS, {"work": Goal(at_most=150)})
    picture = ElementTree.fromstring(drawn(a_report([made, memory])))
    texts = ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "create (work)" in texts
    assert "memory (work)" not in texts, "it has no ratio"
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[1:] == ["2.00 of bindfs", "0.01 of ext4"]


def test_the_axis_of_a_plot_is_logarithmic_and_ends() -> None:
    assert position(10) - position(1) == pytest.approx(position(1) - position(0.1))
    assert position(1e6) == position(100)
    assert position(0) == position(0.01)


# --- the report -------------------------------------------------------------------------------------------------------


def test_a_report_is_read_as_it_was_written() -> None:
    made = a_line({"bindfs": [10, 12], "work": [8, 9]})
    made.results["work"].requests = {"LOOKUP": 1.0}
    report = a_report([made])
    assert decoded(report.encoded()) == report


def test_what_is_no_report_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decoded(b'{"format": 1}')


# --- rounds and requests ----------------------------------------------------------------------------------------------


def test_every_target_goes_first_and_follows_each_other_one() -> None:
    targets = [Target(name, Path(name), Path(name), name) for name in "abc"]
    orders = ["".join(target.name for target in turned(targets, number)) for number in range(6)]
    assert orders == ["abc", "bca", "cab", "cba", "acb", "bac"]


TRACE = """\
# tracer: nop
  python-4711  [000] .....  5.1: fuse_request_send: connection 53 req 2 opcode 1 (FUSE_LOOKUP) len 47
  python-4711  [001] .....  5.2: fuse_request_send: connection 54 req 4 opcode 1 (FUSE_LOOKUP) len 47
  python-4711  [001] .....  5.3: fuse_request_send: connection 53 req 4 opcode 35 (FUSE_CREATE) len 72
  python-4711  [001] .....  5.3: fuse_request_send: connection 53 req 6 opcode 1 (FUSE_LOOKUP) len 47
"""


def test_requests_of_one_mount_are_counted_by_kind() -> None:
    assert parsed(TRACE, 53) == Counter({"LOOKUP": 2, "CREATE": 1})


def test_a_trace_that_lost_events_counts_nothing() -> None:
    assert parsed(TRACE + "CPU:0 [LOST 17 EVENTS]\n", 53) is None


def test_the_picture_of_sparks_times_has_a_bar_for_each_side_as_long_as_its_time() -> None:
    values = {"ext4": [700.0], "s3-30ms": [800.0], "s3a-30ms-1000mbit": [5600.0]}
    batch = line("spark-batch", "a batch", Unit.MILLISECONDS, values, frozenset({"s3-30ms"}), {})
    parts = line("spark-batch: addBatch", "a batch", Unit.MILLISECONDS, values, frozenset({"s3-30ms"}), {})
    picture = ElementTree.fromstring(spark_plot.drawn(a_report([batch, parts])))
    widths = [float(bar.get("width", "0")) for bar in picture.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(widths) == 3
    assert widths[2] == pytest.approx(8 * widths[0], rel=0.01)
    text = "".join(picture.itertext())
    assert "5.6 s" in text
    assert "Holdfast, 30 ms" in text
    assert "S3A, 30 ms, 1000 Mbit/s" in text
