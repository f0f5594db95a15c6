"""holdfast profile and trace against a daemon that has something to do, and the transfers that are under way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.control.messages import TransferInfo
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until

COMMAND = [sys.executable, "-P", "-m", "holdfast"]


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Open and read ``file``, and look at a name that is not there, again and again."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.01):
            file.read_bytes()
            file.with_name("missing").exists()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_profile_shows_what_takes_the_time_and_who_causes_it(node: Node) -> None:
    file = node.checkpoints / "query" / "state" / "0" / "1.delta"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    with reading(file):
        base = [*COMMAND, "profile", str(node.checkpoints), "--seconds", "1", "--socket", str(node.socket)]
        said = subprocess.run([*base, "--by", "operation"], capture_output=True, text=True, check=True).stdout
        found = json.loads(subprocess.run([*base, "--by", "process", "--json"], capture_output=True, check=True).stdout)
        place = json.loads(subprocess.run([*base, "--by", "place", "--json"], capture_output=True, check=True).stdout)
    assert "open " in said
    assert "release " in said
    mine = next(row for row in found["rows"] if row["process"].startswith(f"{os.getpid()} "))
    assert mine["hits"] > 0
    assert 0 < mine["seconds"] < 60
    assert place["rows"][0]["place"] == "checkpoints/query"


def test_trace_prints_each_operation_on_a_file_as_it_ends(node: Node) -> None:
    file = node.checkpoints / "a" / "file"
    file.parent.mkdir()
    file.write_bytes(b"x" * 100)
    command = [*COMMAND, "trace", str(file.parent), "--socket", str(node.socket)]
    (node.checkpoints / "other").write_bytes(b"x")
    with reading(file), reading(node.checkpoints / "other"):
        lines = traced(command, 6)
    assert all("checkpoints/a" in line and "other" not in line for line in lines)
    assert any(" open " in line and "(hit)" in line for line in lines)


def traced(command: list[str], number: int) -> list[str]:
    """Return the first lines that a command prints, and end it as Ctrl-C does."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(number)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    return lines


def test_what_is_fetched_and_sent_is_among_the_transfers(make_node: NodeFactory, remote_files: Path) -> None:
    limits = {f"checkpoints__{way}_bytes_per_second": "2MiB" for way in ("upload", "download")}
    node = make_node(**limits).start()
    remote_files.mkdir(parents=True, exist_ok=True)
    for name in ("large", "before"):
        (remote_files / name).write_bytes(b"x" * 8 * 2**20)
    (node.checkpoints / "before").read_bytes()  # at full speed: what is taken is paid for by those that follow
    (node.checkpoints / "my first").write_bytes(b"y" * 8 * 2**20)
    reads = threading.Thread(target=(node.checkpoints / "large").read_bytes)
    writes = threading.Thread(target=(node.checkpoints / "mine").write_bytes, args=(b"y" * 8 * 2**20,))
    found: dict[str, TransferInfo] = {}
    with node.client() as client:
        assert client.transfers() == []
        reads.start()
        writes.start()

        def both() -> bool:
            found.update({each.direction: each for each in client.transfers()})
            return len(found) == 2

        wait_until(both)
        reads.join()
        writes.join()
        wait_until(lambda: client.transfers() == [])
        reasons = {name: " ".join(client.why(str(node.checkpoints / name)).reasons) for name in ("large", "mine")}
    assert "Slow: " in reasons["large"]
    assert "s waiting for its bytes from the store" in reasons["large"]
    assert "for a request to stores" in reasons["mine"]
    assert found["fetch"].path == str(node.checkpoints / "large")
    assert found["send"].path == str(node.checkpoints / "mine")
    assert {each.size_bytes for each in found.values()} == {8 * 2**20}
    assert not found["fetch"].in_background


def test_stats_prints_a_line_for_each_interval_and_top_wants_a_terminal(node: Node) -> None:
    file = node.checkpoints / "file"
    file.write_bytes(b"x" * 5000)
    with reading(file):
        base = [*COMMAND, "stats", "--interval", "0.5", "--count", "3", "--socket", str(node.socket)]
        lines = subprocess.run(base, capture_output=True, text=True, check=True).stdout.splitlines()
        found = [
            json.loads(line)
            for line in subprocess.run([*base, "--json"], capture_output=True, check=True).stdout.splitlines()
        ]
    assert lines[0].split() == [
        *("time", "calls/s", "99", "%", "hits/s", "misses/s", "fetched/s", "sent/s", "requests/s", "cached", "free")
    ]
    assert len(lines) == 4
    assert len(found) == 3
    assert all(each["operations_per_second"] > 0 and each["hits_per_second"] > 0 for each in found)
    assert all(each["cached_bytes"] == 5000 and 0 < each["operation_seconds_99_percent"] < 60 for each in found)
    top = subprocess.run([*COMMAND, "top", "--socket", str(node.socket)], capture_output=True, text=True, check=False)
    assert (top.returncode, top.stdout) == (78, "")
    assert "holdfast stats" in top.stderr


def test_status_names_the_node_and_what_is_wrong(make_node: NodeFactory) -> None:
    node = make_node(holdings__node="node7").start()
    with node.client() as client:
        assert (client.status().node, client.status().problems) == ("node7", [])
        list(client.drain(10.0))
    said = subprocess.run(
        [*COMMAND, "status", "--socket", str(node.socket)], capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines()[0].split() == ["node", "node7"]
    assert said.splitlines()[1].startswith("WRONG        this node is draining")
