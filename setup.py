"""The C module and the jar for Spark. pyproject.toml has all else about the build, and no settled words for these yet."""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_NATIVE = Path("daemon/holdfast/kernel/native")
_JVM = Path("spark_integration/jvm")
_JAR = "holdfast_spark_jvm/holdfast-spark.jar"
_JAVA_RELEASE = "8"  # Spark 3.5 runs on it
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same sources make the same bytes


class BuildNative(build_ext):
    """Builds what is not Python: the C module, and the jar if there is a Java compiler."""

    def run(self) -> None:
        """Build both."""
        super().run()
        jar = Path(self.build_lib, _JAR)
        problem = _build_jar(jar)
        if problem:
            sys.stderr.write(
                f"{jar.name} is not built: {problem}. All else works without it; Spark then copies state files it could "
                "link. On Debian: apt-get install default-jdk-headless\n"
            )


def _java_compiler() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("javac", path=f"{home}/bin" if home else None) or shutil.which("javac")


def _build_jar(jar: Path) -> str:
    """Compile against the signatures in ``jvm/hadoop`` and ``jvm/spark``, which are not packed: Spark brings all of that.

    Returns an empty string, or why there is no jar.
    """
    compiler = _java_compiler()
    if compiler is None:
        return "there is no Java compiler (javac) on the PATH or in $JAVA_HOME"
    with tempfile.TemporaryDirectory() as directory:
        command = [compiler, "--release", _JAVA_RELEASE, "-Xlint:all,-options", "-Werror", "-implicit:none"]
        sources = sorted(map(str, (_JVM / "src").rglob("*.java")))
        signatures = f"{_JVM / 'hadoop'}:{_JVM / 'spark'}"
        compiled = subprocess.run([*command, "-sourcepath", signatures, "-d", directory, *sources], check=False)
        if compiled.returncode:
            return f"{compiler} has failed; it takes a JDK of version 9 or later"
        jar.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _EPOCH), "Manifest-Version: 1.0\n\n")
            for file in sorted(Path(directory).rglob("*.class")):
                packed.writestr(zipfile.ZipInfo(str(file.relative_to(directory)), _EPOCH), file.read_bytes())
    return ""


setup(
    cmdclass={"build_ext": BuildNative},
    ext_modules=[
        Extension(
            "_holdfast_kernel",
            sources=sorted(map(str, _NATIVE.glob("*.c"))),
            depends=sorted(map(str, _NATIVE.glob("*.h"))),
            define_macros=[("_GNU_SOURCE", "1")],
            # Only what others must find is visible: pyfuse3's libfuse looks names up here first.
            extra_compile_args=["-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"],
        )
    ],
)
