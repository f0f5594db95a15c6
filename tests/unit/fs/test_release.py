"""A handle that the kernel has released is dropped whatever error comes up: nobody would release it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from holdfast.errors import IndexFullError
from holdfast.fs.file_io.release import Background, Releasing
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.system.file_id import FileId, file_stat


class Parts:
    """Mocks of everything that a release calls. ``fails`` names the step that raises."""

    def __init__(self, fails: str, *, late: bool) -> None:
        self.fails = fails
        self.late = late
        self.steps: list[str] = []

    def step(self, name: str) -> None:
        self.steps.append(name)
        if name == self.fails:
            raise IndexFullError("the disk is full")

    def compare_nowait(self, opened: OpenFile) -> bool:
        self.step("compare_nowait")
        return not self.late

    async def compare(self, opened: OpenFile) -> None:
        self.step("compare")

    def detect_writes(self, opened: OpenFile) -> None:
        self.step("detect_writes")

    def has_unsent_at_end(self, opened: OpenFile) -> bool:
        self.step("has_unsent_at_end")
        return False

    async def commit(self, opened: OpenFile) -> None:
        self.step("commit")

    def digest_at_end(self, opened: OpenFile) -> None:
        self.step("digest_at_end")

    def release(self, opened: OpenFile) -> None:
        self.step("release")
        opened.uncount()

    def emit(self, kind: str, **fields: object) -> None:
        self.step(f"{kind}: {fields['problem']}")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenFile]:
    with (tmp_path / "file").open("wb") as file:
        made = OpenFile(Node(7, None, b"", FileId(7), False), file.fileno(), file_stat(file.fileno()), writable=True)
        made.changed()  # or there would be nothing to account for
        made.count()
        yield made


@pytest.mark.parametrize(
    ("fails", "late"),
    [
        ("compare_nowait", False),
        ("detect_writes", False),
        ("has_unsent_at_end", False),
        ("digest_at_end", False),
        ("compare", True),
        ("commit", True),
        ("digest_at_end", True),
    ],
)
async def test_after_an_error_the_handle_is_gone_and_an_event_tells(opened: OpenFile, fails: str, late: bool) -> None:
    parts: Any = Parts(fails, late=late)
    background = Background()
    base: Any = SimpleNamespace(invalidation=parts, parts=SimpleNamespace(events=parts))
    releasing = Releasing(base, parts, parts, parts, parts, background)
    async with trio.open_nursery() as nursery:
        await nursery.start(background.run)
        releasing.finish(opened)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert parts.steps[-2:] == ["unsent: the disk is full", "release"]
    assert (opened.handles, opened.leaving) == (0, 0)
