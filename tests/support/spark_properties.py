"""The properties file of ``docs/spark.md``, for jobs that have no line of Holdfast's."""

from __future__ import annotations

from pathlib import Path

_DOCUMENT = Path(__file__).parents[2] / "docs/spark.md"
_COMMAND = "$ cat /etc/holdfast/spark.conf\n"
_MOUNTPOINT = "/mnt/holdfast/"


def documented_properties(mountpoint: Path) -> dict[str, str]:
    """Return the properties, for a mount at ``mountpoint``."""
    text = _DOCUMENT.read_text().partition(_COMMAND)[2].partition("\n$ ")[0]
    pairs = (line.split(maxsplit=1) for line in text.replace(_MOUNTPOINT, f"{mountpoint}/").splitlines())
    return {key: value.strip() for key, value in pairs}
