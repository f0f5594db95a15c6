"""``./run calls``: the functions that the requests of a command go through."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise, takewhile


def test_it_prints_the_calls_of_each_request_and_ends_as_the_command_does() -> None:
    command = "echo 12345 >$STORE/checkpoints/object; cat checkpoints/object; exit 3"
    done = subprocess.run([sys.executable, "-m", "tests.calls", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "12345"
    beginnings = [number for number, line in enumerate(lines) if line.endswith(" moves between modules")]
    parts = [lines[first:end] for first, end in pairwise([*beginnings, len(lines)])]
    requests = {part[0].partition(":")[0]: part for part in parts}
    assert {"lookup", "open", "release"} <= requests.keys()
    opened = requests["open"]
    assert opened[0].startswith(f"open: {len(opened) - 1} calls, ")
    assert "  ImmediateReplies.answer  (fs/fuse/immediate_replies.py)" in opened
    assert "  LaterReplies._reply  (fs/fuse/later_replies.py)" in opened
    assert any("transfer/" in line for line in opened)
    # What the loop does for itself before the next request is counted to this one too, less deep.
    released = list(takewhile(lambda line: line.startswith("    ") or "replying" in line, requests["release"][2:]))
    assert released
    assert not any("transfer/" in line for line in released)
