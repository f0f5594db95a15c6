"""Who gets a connection, who is let into a directory, and answers that come page by page."""

from __future__ import annotations

import json

import pytest
from starlette.responses import StreamingResponse

from holdfast.control.callers import Caller
from holdfast.control.http_server import Admission, Caps
from holdfast.control.messages import ReleaseRequest
from holdfast.control.replies import LARGEST_PAGE, listed

ROOT, ALICE, BOB = 0, 1000, 1001


def test_a_user_has_its_number_and_others_have_theirs() -> None:
    admission = Admission(Caps(total=10, each_user=3, for_root=2))
    assert [admission.admit(ALICE) for _ in range(4)] == [True, True, True, False]
    assert [admission.admit(BOB) for _ in range(4)] == [True, True, True, False]
    admission.leave(ALICE)
    assert admission.admit(ALICE)


def test_the_last_places_are_roots() -> None:
    admission = Admission(Caps(total=10, each_user=100, for_root=2))
    assert sum(admission.admit(ALICE + number) for number in range(20)) == 8
    assert [admission.admit(ROOT) for _ in range(3)] == [True, True, False]
    admission.leave(ROOT)
    assert not admission.admit(BOB)


def test_root_has_no_number_of_its_own() -> None:
    admission = Admission(Caps(total=10, each_user=1, for_root=2))
    assert sum(admission.admit(ROOT) for _ in range(20)) == 10


def test_who_has_most_gives_way_and_who_has_its_number_to_itself() -> None:
    admission = Admission(Caps(total=5, each_user=3, for_root=0))
    for peer in (ALICE, BOB, BOB, BOB, "192.0.2.7"):
        assert admission.admit(peer)
    assert admission.who_gives_way("192.0.2.8") == BOB
    assert admission.who_gives_way(BOB) == BOB
    admission.leave(BOB)
    assert admission.admit("192.0.2.8")


@pytest.mark.parametrize(
    ("caller", "mode", "may"),
    [
        (Caller(0, 0, frozenset()), 0o000, True),
        (Caller(5, 9, frozenset()), 0o100, True),
        (Caller(5, 6, frozenset()), 0o077, False),  # the owner's bits count for the owner, whatever the others are
        (Caller(7, 6, frozenset()), 0o710, True),
        (Caller(7, 9, frozenset({6})), 0o710, True),
        (Caller(7, 9, frozenset({6})), 0o701, False),
        (Caller(7, 9, frozenset()), 0o701, True),
        (Caller(7, 9, frozenset()), 0o710, False),
    ],
)
def test_rights_to_search_are_those_of_the_kernel(caller: Caller, mode: int, may: bool) -> None:
    assert caller.may_search(uid=5, gid=6, mode=mode) is may


@pytest.mark.parametrize("count", [0, 1, LARGEST_PAGE, 2 * LARGEST_PAGE + 1])
async def test_a_list_in_pages_is_a_list(count: int) -> None:
    answer = listed(ReleaseRequest(role="driver", id=str(number)) for number in range(count))
    assert isinstance(answer, StreamingResponse)
    parts = [bytes(part) if not isinstance(part, str) else part.encode() async for part in answer.body_iterator]
    assert len(parts) == -(-count // LARGEST_PAGE) + 1
    assert [entry["id"] for entry in json.loads(b"".join(parts))] == [str(number) for number in range(count)]
