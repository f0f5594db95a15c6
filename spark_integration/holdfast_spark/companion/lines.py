"""The lines between the plugin in the JVM and this process: fields with tabs between them.

In a field, a backslash and a letter stand for a tab, an end of a line, or a backslash; so each line is one message, whatever
it is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_PLAIN = {"t": "\t", "n": "\n", "r": "\r"}


def line_of(fields: Iterable[str]) -> str:
    """Return the line of these fields, without its end."""
    return "\t".join(re.sub(r"[\\\t\n\r]", lambda found: _ESCAPES[found[0]], field) for field in fields)


def fields_of(line: str) -> list[str]:
    """Return the fields of a line, without its end."""
    return [re.sub(r"\\(.)", lambda found: _PLAIN.get(found[1], found[1]), field) for field in line.split("\t")]
