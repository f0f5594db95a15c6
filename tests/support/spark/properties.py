"""The properties file of ``docs/spark.md``, for jobs that have no line of Holdfast's."""

from __future__ import annotations

from pathlib import Path, PurePath

from holdfast_spark.linking import jar_path

_DOCUMENT = Path(__file__).parents[3] / "docs/spark.md"
_COMMAND = "$ cat /etc/holdfast/spark.conf\n"
_MOUNTPOINT = "/mnt/holdfast/"
_PACKAGED_JAR = "/usr/share/holdfast/holdfast-spark.jar"
_NEWEST = (4, 3)
_SINCE_NEWEST = (
    "spark.sql.streaming.stateStore.checkpointFormatVersion",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled",
)
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_MANAGER_MOVED = (4, 1)


def documented_properties(
    mountpoint: Path, jar: PurePath | None = None, release: tuple[int, int] = _NEWEST
) -> dict[str, str]:
    """Return the properties for a release of Spark and a mount at ``mountpoint``, with Holdfast's jar at the path ``jar``.

    By default the jar is where it is here.
    """
    text = _DOCUMENT.read_text().partition(_COMMAND)[2].partition("\n$ ")[0]
    here = text.replace(_MOUNTPOINT, f"{mountpoint}/").replace(_PACKAGED_JAR, str(jar or jar_path()))
    pairs = (line.split(maxsplit=1) for line in here.splitlines())
    properties = {key: value.strip() for key, value in pairs}
    if release < _NEWEST:
        for key in _SINCE_NEWEST:
            del properties[key]
    if release < _MANAGER_MOVED:
        properties[_MANAGER] = properties[_MANAGER].replace(".checkpointing.", ".")
    return properties
