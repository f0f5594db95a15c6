"""A finding of ``holdfast doctor``: one check, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast.errors import HoldfastError


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. ``level`` is ok, warn or fail; ``mend`` says what to do; ``about`` is what it is a check of."""

    check: str
    level: str
    found: str
    mend: str = ""
    about: str = "machine"
    """``machine``, ``daemon`` (the one that answers) or ``start`` (one that starts with the configuration)."""


Check = Callable[[], Iterator[Finding]]


def findings_of(name: str, check: Check) -> Iterator[Finding]:
    """Yield the findings of a check. What this user may not see, and what it raises, is a finding of the name too."""
    try:
        yield from check()
    except HoldfastError as problem:
        yield Finding(name, "fail", str(problem))
    except PermissionError as problem:
        yield Finding(name, "warn", f"this user may not look at {problem.filename}", "run doctor as root")
    except OSError as problem:
        yield Finding(name, "fail", f"{problem.filename or name}: {problem.strerror}")
