"""The settings of ``spark-defaults.conf``, read as Spark reads it: the format of Java's ``Properties``.

Source: https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/Properties.html, ``load``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
"""An odd number of backslashes at the end of a line."""
_PAIR = re.compile(r"((?:[^ \t\f=:\\]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_SPECIAL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def spark_defaults() -> dict[str, str]:
    """Return the settings of the file that a driver of PySpark's reads; nothing if there is none, or another one is named.

    ``--properties-file`` in ``PYSPARK_SUBMIT_ARGS`` names another one.
    """
    from pyspark.find_spark_home import _find_spark_home  # workers' environments may lack it

    if "--properties-file" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return {}
    directory = os.environ.get("SPARK_CONF_DIR") or f"{_find_spark_home()}/conf"
    try:
        return properties(Path(directory, "spark-defaults.conf").read_text("utf-8", errors="replace"))
    except OSError:
        return {}


def properties(text: str) -> dict[str, str]:
    """Return the pairs of a properties file. Values are stripped, as Spark does."""
    found: dict[str, str] = {}
    lines = iter(_LINE_END.split(text))
    for each in lines:
        line = each.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        while _CONTINUED.search(line):
            line = line[:-1] + next(lines, "").lstrip(_BLANK)
        pair = _PAIR.match(line)
        if pair is not None:
            found[_plain(pair[1])] = _plain(pair[2]).strip()
    return found


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: _unescaped(found[1]), text)


def _unescaped(escaped: str) -> str:
    return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _SPECIAL.get(escaped, escaped)
