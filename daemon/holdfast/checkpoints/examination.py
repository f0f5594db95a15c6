"""Judging a listing without I/O: a judge asks for the manifests it needs, and its caller fetches them.

A judge is a generator. It yields the manifests it wants (``Wanted``) and is sent what was read. ``Examination`` wraps one:
the caller fetches all that is wanted, in parallel or one by one, and reads each with its ``kind``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Generic, TypeAlias, TypeVar

from holdfast.checkpoints.manifests import Manifest, ManifestKind, Trouble, Unreadable

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A manifest that has to be read, with the size that was listed."""

    name: bytes
    kind: ManifestKind
    size_bytes: int


Answers: TypeAlias = Mapping[bytes, Manifest]
Asking: TypeAlias = Generator[Sequence[Wanted], Answers, _T]


def missing(name: bytes) -> Unreadable:
    """Return the answer for a manifest that is not there any more."""
    return Unreadable(Trouble.MISSING, f"{name!r} was listed, but has gone")


def together(parts: Sequence[Asking[_T]]) -> Asking[list[_T]]:
    """Run several judges side by side: what all of them want is asked for at once."""
    results: dict[int, _T] = {}
    waiting: dict[int, Sequence[Wanted]] = {}

    def advance(index: int, answers: Answers | None) -> None:
        try:
            waiting[index] = next(parts[index]) if answers is None else parts[index].send(answers)
        except StopIteration as stop:
            waiting.pop(index, None)
            results[index] = stop.value

    for index in range(len(parts)):
        advance(index, None)
    while waiting:
        answers = yield [wanted for each in waiting.values() for wanted in each]
        for index, wanted_of_part in list(waiting.items()):
            advance(index, {wanted.name: answers[wanted.name] for wanted in wanted_of_part})
    return [results[index] for index in range(len(parts))]


class Examination(Generic[_T]):
    """A judge at work. While ``wanted`` is not empty, supply an answer for each; after that there is a ``result``."""

    def __init__(self, asking: Asking[_T]) -> None:
        self._asking = asking
        self._results: list[_T] = []
        self.wanted: tuple[Wanted, ...] = ()
        self._advance(None)

    def supply(self, answers: Answers) -> None:
        """Continue with what was read. The answer for a manifest that has gone meanwhile is ``missing``."""
        self._advance(answers)

    @property
    def result(self) -> _T:
        """The result. Available once nothing is wanted any more."""
        return self._results[0]

    def _advance(self, answers: Answers | None) -> None:
        wanted: Sequence[Wanted] = ()
        try:
            while not wanted:
                wanted = next(self._asking) if answers is None else self._asking.send(answers)
                answers = {}
        except StopIteration as stop:
            self._results.append(stop.value)
        self.wanted = tuple(wanted)


def examined(examination: Examination[_T], open_object: Callable[[bytes], BinaryIO]) -> _T:
    """Carry an examination through, one manifest after the other. For small roots and tests.

    ``open_object`` returns a seekable stream, or raises ``FileNotFoundError``. Raises its other errors.
    """
    while examination.wanted:
        examination.supply({wanted.name: _answer(wanted, open_object) for wanted in examination.wanted})
    return examination.result


def _answer(wanted: Wanted, open_object: Callable[[bytes], BinaryIO]) -> Manifest:
    try:
        stream = open_object(wanted.name)
    except FileNotFoundError:
        return missing(wanted.name)
    with stream:
        return wanted.kind.read(stream, wanted.size_bytes)
