"""The classes of a driver without Python, as ``class_names`` has those of PySpark's: loaded ahead, and written down."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from holdfast_spark.after_batches import BATCHES
from holdfast_spark.class_names import PARTS, left_out, names_path
from holdfast_spark.companion.jvm import JvmDriver

_log = logging.getLogger("holdfast.class_names")


class KnownClasses:
    """Has the JVM load the classes of the driver before it, and write down its own once some batches are done."""

    def __init__(self, jvm: JvmDriver) -> None:
        self._jvm = jvm
        self._unwritten: Path | None = None
        self._batches = 0

    def load(self, local: Path) -> None:
        """Let the JVM, whose own files are in ``local``, begin to load them. It is asked, so this waits for it."""
        names = names_path(local)
        part = left_out(names)
        self._unwritten = names if part >= 0 else None
        if os.path.exists(names):  # Path.exists raises where one may not look
            _attempt(lambda: self._jvm.load_classes(names, PARTS, part))

    def progressed(self, progress: str) -> None:
        """Count a batch, a ``StreamingQueryProgress`` in JSON, if it had input. The names are written in a thread."""
        names = self._unwritten
        if names is None or not _has_input(progress):
            return
        self._batches += 1
        if self._batches == BATCHES:
            self._unwritten = None
            write = partial(self._jvm.write_classes, names)
            threading.Thread(target=_attempt, args=(write,), daemon=True).start()


def _has_input(progress: str) -> bool:
    try:
        return bool(json.loads(progress)["numInputRows"] > 0)
    except (ValueError, KeyError, TypeError):  # a Spark that has other fields
        return False


def _attempt(question: Callable[[], None]) -> None:
    try:
        question()
    except Exception as problem:  # noqa: BLE001 an older jar does not know the question, and the JVM may raise anything
        _log.info("classes are not loaded ahead, or not written down for the next driver: %s", problem)
