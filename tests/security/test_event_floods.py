"""Floods of events by one user: they are summed up, what happens to others is still told, and memory is bounded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.daemons.node import Node, wait_until
from tests.support.users.hostile_clients import attacking, connected, get
from tests.support.users.privileges import ALICE, MALLORY

_MANY = 600


def made(base: Path, name: str, many: int) -> int:
    for number in range(many):
        (base / f"{name}_{number}").mkdir()
    return many


@pytest.mark.promise("floods")
def test_one_users_events_leave_room_for_those_of_others(node: Node) -> None:
    """Gain: who floods the journal, an administrator never sees what else was done."""
    (node.work).chmod(0o1777)
    with attacking(MALLORY, lambda: made(node.work, "driver", _MANY)):
        ALICE.do(lambda: (node.work / "worker_alice").mkdir())
        told = node.wait_event("workdir-released", path="work/worker_alice")
        assert told["uid"] == ALICE.uid
        with node.client() as client:
            events = [(event.kind, event.fields.get("uid")) for event in client.events()]
        assert events.count(("workdir-acquired", ALICE.uid)) == 1
        assert 0 < events.count(("workdir-acquired", MALLORY.uid)) <= 150
    node.stop()
    journal = [json.loads(line) for line in (node.store / "events.jsonl").read_text().splitlines()]
    summaries = [line for line in journal if line["kind"] == "summed-up" and line["of"] == "workdir-acquired"]
    assert {line["by"] for line in summaries} == {MALLORY.uid}
    recorded = sum(line["kind"] == "workdir-acquired" and line["uid"] == MALLORY.uid for line in journal)
    assert recorded + sum(line["more"] for line in summaries) == _MANY, "none is lost without a word"


def test_refused_connections_do_not_flood_the_journal(node: Node) -> None:
    """Gain: as above, with a loop of connects in place of directories."""
    status = node.socket.with_name("status.sock")

    def attack() -> int:
        held = [connected(status) for _ in range(16)]
        for _ in range(400):
            connected(status).close()
        return len(held)

    with attacking(MALLORY, attack):
        told = [event for event in node.events("connections-refused") if event["uid"] == MALLORY.uid]
        assert 0 < len(told) <= 110


def test_a_reader_of_events_that_reads_nothing_holds_nothing_up(node: Node) -> None:
    """Gain: what a slow reader has not taken piles up in the daemon's memory, or stops the others."""
    with connected(node.socket) as channel:
        channel.sendall(b"GET /v1/events HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n")
        made(node.work, "driver", 300)
        assert get(node.socket, "/v1/status")[0] == 200
        (node.work / "worker_b").mkdir()
        node.wait_event("workdir-acquired", path="work/worker_b")
        wait_until(lambda: len(channel.recv(65536)) > 0)
