"""Which queries a standby asks about next, when there are more than it asks at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from holdfast.errors import HoldfastError, ObjectChangedError, RemoteUnavailableError
from holdfast.holdings.report import NodeReport, Partition, QueryState, StoreState
from holdfast.standbys.commits import Commits
from holdfast.standbys.duties import Neighbours, Reporter, duties_of
from holdfast.standbys.turns import Turns
from holdfast.standbys.wishes import Wishes

QUERY = "team/q"


class Store:
    """A store that answers what a test says: wishes and newest versions by location, or a problem."""

    def __init__(self, wishes: Mapping[str, int | HoldfastError], versions: Mapping[str, int | HoldfastError]) -> None:
        self.zone = "checkpoints"
        self.wishes = dict(wishes)
        self.versions = dict(versions)
        self.asked: list[str] = []
        self.slow = ""

    async def wanted_copies(self, location: str) -> int | None:
        await self._wait(location)
        return self._answer(location, self.wishes.get(location))

    async def newest_version(self, location: str) -> int:
        await self._wait(location)
        return self._answer(location, self.versions.get(location)) or 0

    async def _wait(self, location: str) -> None:
        if location == self.slow:
            await trio.sleep_forever()

    def _answer(self, location: str, answer: int | HoldfastError | None) -> int | None:
        self.asked.append(location)
        if isinstance(answer, HoldfastError):
            raise answer
        return answer


def wishes_of(store: Store) -> Wishes:
    catching_up: Any = store
    return Wishes(catching_up)


def commits_of(store: Store) -> Commits:
    catching_up: Any = store
    return Commits(catching_up)


def test_who_was_asked_longest_ago_comes_next_and_nobody_too_often() -> None:
    turns = Turns(2)
    for now, expected in ((0.0, ["a", "b"]), (1.0, ["c", "d"]), (2.0, ["e"]), (10.0, ["a", "b"]), (10.5, [])):
        due = turns.due("edcba", (), now, every_seconds=10.0)
        assert due == expected
        for name in due:
            turns.took(name, now)
    assert turns.due("abf", (), 11.0, every_seconds=10.0) == ["f"]
    assert turns.due("c", (), 11.0, every_seconds=10.0) == ["c"], "who was not given is forgotten"


def test_who_is_preferred_comes_before_those_who_wait_longer() -> None:
    turns = Turns(2)
    turns.took("b", 5.0)
    assert turns.due(["a", "b", "c"], ["b"], 6.0) == ["b", "a"]


async def test_the_wishes_of_more_queries_than_are_asked_at_once_are_all_known_in_the_end(mock_clock: MockClock) -> None:
    locations = [f"q{number:04}" for number in range(2500)]
    store = Store(dict.fromkeys(locations, 2), {})
    wishes = wishes_of(store)
    for expected in (1000, 2000, 2500, 2500):
        mock_clock.jump(120)
        assert len(await wishes.look(locations, (), 600)) == expected
    assert len(store.asked) == 2500, "each is asked once in ten minutes"


async def test_what_others_make_up_comes_after_queries_that_have_committed_something(mock_clock: MockClock) -> None:
    store = Store({"zz/real": 3}, {})
    wishes = wishes_of(store)
    made_up = [f"a/{number}" for number in range(5000)]
    assert await wishes.look([*made_up, "zz/real"], ["zz/real"], 600) == {"zz/real": 3}
    store.wishes = {"zz/real": 1}
    mock_clock.jump(601)
    assert await wishes.look([*made_up, "zz/real"], ["zz/real"], 600) == {"zz/real": 1}
    assert await wishes.look(made_up, (), 600) == {}


@pytest.mark.parametrize(
    ("problem", "raises"), [(ObjectChangedError("empty"), False), (RemoteUnavailableError("away"), True)]
)
async def test_a_query_whose_wish_can_not_be_read_has_none(problem: HoldfastError, raises: bool) -> None:
    wishes = wishes_of(Store({"a": problem, "b": 2}, {}))
    if raises:
        with pytest.raises(RemoteUnavailableError):
            await wishes.look(["a", "b"], (), 600)
    else:
        assert await wishes.look(["a", "b"], (), 600) == {"b": 2}


async def test_a_wish_that_can_not_be_read_any_more_is_believed_and_asked_for_sooner(mock_clock: MockClock) -> None:
    store = Store({"a": 2, "b": 3}, {})
    wishes = wishes_of(store)
    assert await wishes.look(["a", "b"], (), 600) == {"a": 2, "b": 3}
    store.wishes["a"] = ObjectChangedError("it is written just now")
    mock_clock.jump(601)
    assert await wishes.look(["a", "b"], (), 600) == {"a": 2, "b": 3}
    store.wishes["a"] = 4
    for jump, expected in ((100, 2), (21, 4)):
        mock_clock.jump(jump)
        assert await wishes.look(["a", "b"], (), 600) == {"a": expected, "b": 3}
    assert store.asked == [*"ab" * 2, "a"]


def neighbours(version: int) -> Neighbours:
    """Return the neighbourhood of a node without state, beside one that works with a version of ``QUERY``."""
    state = StoreState(0, 3, "default", version, 100)
    reports = [
        NodeReport(node="holder", cores=4, standbys=1, queries=[QueryState(QUERY, [state])]),
        NodeReport(node="me", cores=4, standbys=1),
    ]
    return Neighbours("me", [Reporter(report.node, report) for report in reports], lambda _: ["me"])


async def test_a_node_that_was_away_for_thousands_of_versions_finds_out_how_far_a_query_is() -> None:
    store = Store({}, {QUERY: 10})
    commits = commits_of(store)
    assert await commits.look(QUERY, 60) == 10
    store.versions[QUERY] = 5000
    assert duties_of(neighbours(5000), {}, 1, commits.newest).stands_by == {}, "it believes nobody"
    await commits.look_at_doubtful(neighbours(5000), 600)
    assert commits.newest == {QUERY: 5000}
    assert set(duties_of(neighbours(5000), {}, 1, commits.newest).stands_by) == {Partition(QUERY, 3)}
    asked = len(store.asked)
    await commits.look_at_doubtful(neighbours(6000), 600)
    assert len(store.asked) == asked, "that may be true"


async def test_a_planted_version_is_looked_into_now_and_then_and_not_believed(mock_clock: MockClock) -> None:
    store = Store({}, {QUERY: 10})
    commits = commits_of(store)
    await commits.look(QUERY, 60)
    for jump, expected in ((0, 2), (599, 2), (2, 3)):
        mock_clock.jump(jump)
        await commits.look_at_doubtful(neighbours(2**63 - 1), 600)
        assert len(store.asked) == expected
        assert duties_of(neighbours(2**63 - 1), {}, 1, commits.newest).stands_by == {}
    store.versions[QUERY] = ObjectChangedError("refused")
    mock_clock.jump(601)
    await commits.look_at_doubtful(neighbours(2**63 - 1), 600)
    assert commits.newest == {QUERY: 10}
    store.versions[QUERY] = RemoteUnavailableError("away")
    mock_clock.jump(601)
    with pytest.raises(RemoteUnavailableError):
        await commits.look_at_doubtful(neighbours(2**63 - 1), 600)


async def test_many_planted_versions_cost_few_listings_a_look(mock_clock: MockClock) -> None:
    locations = [f"q{number:03}" for number in range(100)]
    store = Store({}, dict.fromkeys(locations, 10))
    commits = commits_of(store)
    commits.newest = dict.fromkeys(locations, 10)
    state = [StoreState(0, 3, "default", 5000, 100)]
    reports = [NodeReport(node="holder", queries=[QueryState(location, state) for location in locations])]
    planted = Neighbours("me", [Reporter(report.node, report) for report in reports], lambda _: ["me"])
    for expected in (10, 20):
        await commits.look_at_doubtful(planted, 600)
        assert len(store.asked) == len(set(store.asked)) == expected
        mock_clock.jump(120)


async def test_a_listing_that_takes_too_long_lets_others_have_their_turn(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    locations = ["a", "b"]
    store = Store({}, dict.fromkeys(locations, 5000))
    store.slow = "a"
    commits = commits_of(store)
    commits.newest = dict.fromkeys(locations, 10)
    state = [StoreState(0, 3, "default", 5000, 100)]
    reports = [NodeReport(node="holder", queries=[QueryState(location, state) for location in locations])]
    for _ in range(2):
        with trio.move_on_after(30):
            await commits.look_at_doubtful(Neighbours("me", [Reporter("holder", reports[0])], lambda _: ["me"]), 600)
    assert commits.newest == {"a": 10, "b": 5000}


async def test_a_wish_that_takes_too_long_lets_others_have_their_turn(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    store = Store({"a": 2, "b": 3}, {})
    store.slow = "a"
    wishes = wishes_of(store)
    for _ in range(2):
        with trio.move_on_after(30):
            await wishes.look(["a", "b"], (), 600)
    assert wishes.known(["a", "b"]) == {"b": 3}


async def test_a_query_without_commits_is_left_alone_for_a_while(mock_clock: MockClock) -> None:
    store = Store({}, {})
    commits = commits_of(store)
    for jump, expected in ((0, 1), (59, 1), (2, 2)):
        mock_clock.jump(jump)
        assert await commits.look(QUERY, 60) == 0
        assert len(store.asked) == expected
    assert commits.going_on == []
    commits.keep([])
    assert commits.newest == {}
    store.versions[QUERY] = 3
    assert await commits.look(QUERY, 60) == 3
    assert commits.going_on == [QUERY]
