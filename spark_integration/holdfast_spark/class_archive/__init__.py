"""The classes of a driver's JVM, kept in its working directory in the form in which the next JVM maps them.

A JVM that starts reads, checks and links some 20,000 classes of Spark: two seconds of a processor before there is a session,
and one and a half in the first batch. Java's class data sharing keeps the result in a file. The first driver in a working
directory writes down which classes it loads; after some batches a process beside it makes the archive of them
(``making``), and all later drivers there start with it. The JVM itself does not use an archive that does not fit it or its
jars, or is damaged; such an archive is removed, and the next driver begins anew. So is one with which a JVM did not come up.
"""

from __future__ import annotations

import logging
import os
import stat as stat_module
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast_spark.after_batches import after_batches
from holdfast_spark.connect import has_jvm
from holdfast_spark.jvm_options import JVM_OPTIONS_KEY, OF_ALL_JVMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKED = "-XX:+VerifySharedSpaces"
"""The JVM's option to keep checksums in an archive, and to compare them before it uses one: a flipped bit would end it."""
_QUIET = "-Xlog:cds=off"
"""The JVM's option to say nothing of an archive that it does not use: Java 21 would, on the driver's standard output."""
_ARCHIVE = "classes.jsa"
_TRYING = "classes.trying"
"""A file beside the archive, from before a JVM starts with it until there is a session."""
_LIST = "classes.list"
_COMPRESSED_BYTES = 32 * 2**30
"""The heap from which on a JVM has no compressed pointers to objects; it uses no archive of one that has."""
_OF_ITS_KIND = ("--add-modules=", "-XX:+Use", "-XX:-Use", "-XX:ObjectAlignmentInBytes=")
"""Options that an archive depends on."""
_SHARING = "sharing"
"""A word in ``java.vm.info`` of a JVM that uses an archive."""
_log = logging.getLogger("holdfast.class_archive")


def archive_path(local: Path) -> Path:
    """Return where the archive is of drivers whose own files are in ``local``, below ``tmp/`` of the working directory."""
    return local.parent.parent / _ARCHIVE


def with_archive(settings: dict[str, str], local: Path) -> dict[str, str]:
    """Return Spark's settings with a JVM's options: use the archive that is there, or write down which classes it takes."""
    archive = archive_path(local)
    trying = archive.with_name(_TRYING)
    if trying.exists() or not _is_own(archive):
        archive.unlink(missing_ok=True)
    trying.unlink(missing_ok=True)
    if archive.exists():
        trying.touch()
    use, prepare = f"{CHECKED} {_QUIET} -XX:SharedArchiveFile={archive}", f"-XX:DumpLoadedClassList={local / _LIST}"
    option = use if archive.exists() else prepare
    return {**settings, JVM_OPTIONS_KEY: f"{settings[JVM_OPTIONS_KEY]} {option}"}


def _is_own(archive: Path) -> bool:
    """Say whether nobody else can have written the archive: a JVM runs what is in it."""
    try:
        stat = archive.lstat()
    except OSError:
        return False
    is_file = stat_module.S_ISREG(stat.st_mode) and stat.st_nlink == 1
    return is_file and stat.st_uid == os.geteuid() and not stat.st_mode & (stat_module.S_IWGRP | stat_module.S_IWOTH)


def keep_archive(spark: SparkSession, local: Path) -> None:
    """Have the archive made that the driver's JVM was started to prepare, or removed if the JVM could not use it.

    Nothing is done for a JVM that was started without ``with_archive``. What fails is logged (``holdfast.class_archive``).
    """
    if not has_jvm(spark):
        return
    try:
        archive_path(local).with_name(_TRYING).unlink(missing_ok=True)  # the JVM has come up
        _look_at(spark, local, _options(spark))
    except Exception as problem:  # noqa: BLE001 whatever Spark's JVM raises: then drivers start as without
        _log.info("the classes of the driver's JVM are not prepared for the next start: %s", problem)


def _look_at(spark: SparkSession, local: Path, options: list[str]) -> None:
    archive, listed = archive_path(local), local / _LIST
    if f"-XX:SharedArchiveFile={archive}" in options and _SHARING not in _property(spark, "java.vm.info"):
        _log.info("the JVM could not use %s, as when it or its jars have changed: it is made anew", archive)
        archive.unlink(missing_ok=True)
    elif f"-XX:DumpLoadedClassList={listed}" in options:
        command = _command(spark, options, listed)
        after_batches(spark, lambda: _make(command))


def _make(command: list[str]) -> None:
    try:
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # it ends when this process does
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the driver
            env={  # without the agents, ports and heaps that are the driver's
                **{name: value for name, value in os.environ.items() if name not in OF_ALL_JVMS},
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        ).wait()
    except OSError as problem:
        _log.info("the classes of the driver's JVM are not prepared for the next start: %s", problem)


def _command(spark: SparkSession, options: list[str], listed: Path) -> list[str]:
    java = Path(_property(spark, "java.home")) / "bin/java"
    kept = [option for option in options if option.startswith(_OF_ITS_KIND)]
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 Python has no other way to the JVM
    if jvm.java.lang.Runtime.getRuntime().maxMemory() >= _COMPRESSED_BYTES:
        kept.append("-XX:-UseCompressedOops")
    making = [sys.executable, "-m", "holdfast_spark.class_archive.making", str(listed), str(archive_path(listed.parent))]
    return [*making, str(java), *kept, "-cp", named_apart(_property(spark, "java.class.path"))]


def named_apart(class_path: str) -> str:
    """Return a class path of the same files, with another name for each that is named again.

    Spark's launcher names one jar twice: in front of all others, and among them. Java 21 leaves the second one out of the
    path that it writes into an archive, if the names are the same, and misses it there when a JVM starts with the archive.
    What it compares then are the files.
    """
    names: list[str] = []
    for path in filter(None, class_path.split(os.pathsep)):
        name = path
        while name in names:
            name = os.path.join(os.path.dirname(name), os.curdir, os.path.basename(name))
        names.append(name)
    return os.pathsep.join(names)


def _options(spark: SparkSession) -> list[str]:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 as above
    return list(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())


def _property(spark: SparkSession, name: str) -> str:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 as above
    return str(jvm.java.lang.System.getProperty(name))
