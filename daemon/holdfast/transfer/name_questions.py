"""Questions to a store about single names: whether an answer still counts when it comes.

It does not if this node has changed the name meanwhile, even if it has undone that again, or if the answer to a later
question, or a later LIST, has come before.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio


class Question:
    """A question about one name whose answer is awaited; ``is_outdated`` if something newer is known by now."""

    __slots__ = ("began", "is_outdated", "name")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.began = trio.current_time()
        self.is_outdated = False


def outdate(questions: Iterable[Question], name: bytes) -> None:
    """Note that something newer is known of ``name`` than what the answers to these questions will say."""
    for question in questions:
        question.is_outdated |= question.name == name


def outdate_earlier(questions: Iterable[Question], began: float) -> None:
    """Note that a LIST which began at ``began`` (trio time) has told of all names."""
    for question in questions:
        question.is_outdated |= question.began < began
