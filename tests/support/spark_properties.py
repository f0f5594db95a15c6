"""The properties file of ``docs/spark.md``, for jobs that have no line of Holdfast's."""

from __future__ import annotations

from pathlib import Path, PurePath

from holdfast_spark.linking import jar_path

_DOCUMENT = Path(__file__).parents[2] / "docs/spark.md"
_COMMAND = "$ cat /etc/holdfast/spark.conf\n"
_MOUNTPOINT = "/mnt/holdfast/"
_PACKAGED_JAR = "/usr/share/holdfast/holdfast-spark.jar"


def documented_properties(mountpoint: Path, jar: PurePath | None = None) -> dict[str, str]:
    """Return the properties, for a mount at ``mountpoint``, and Holdfast's jar at the path ``jar``, or where it is here."""
    text = _DOCUMENT.read_text().partition(_COMMAND)[2].partition("\n$ ")[0]
    here = text.replace(_MOUNTPOINT, f"{mountpoint}/").replace(_PACKAGED_JAR, str(jar or jar_path()))
    pairs = (line.split(maxsplit=1) for line in here.splitlines())
    return {key: value.strip() for key, value in pairs}
