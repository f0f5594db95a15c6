"""The examples of docs/api.md, as they stand there, with a real daemon."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.daemons.node import Node

EXAMPLES = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs/api.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_for_programs_work(example: str, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    (node.checkpoints / "flights").mkdir()
    (node.checkpoints / "flights/file").write_bytes(b"x" * 100)
    exec(compile(example.replace("/run/holdfast/control.sock", str(node.socket)), "docs/api.md", "exec"), {})
    said = capsys.readouterr().out
    if "prefetch" in example:
        assert f"{node.mountpoint}: 0 hits, 0 misses" in said
        assert f" 100 {node.checkpoints}/flights/file" in said
