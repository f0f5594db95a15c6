"""The C module and the jar for Spark. pyproject.toml has all else about the build, and no settled words for these yet.

Clients need neither, so an installation goes on without them and says what is missing. ``HOLDFAST_C_MODULE=required`` makes
it an error if the C module can't be built, as builds for nodes need it; ``none`` leaves it out.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

_C_MODULE = "_holdfast_kernel"
_NATIVE = Path("daemon/holdfast/kernel/native")
_JVM = Path("spark_integration/jvm")
_JAR = "holdfast_spark_jvm/holdfast-spark.jar"
_JAVA_RELEASE = "8"  # Spark 3.5 runs on it
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same sources make the same bytes


class BuildNative(build_ext):
    """Builds what is not Python: the C module, and the jar if there is a Java compiler."""

    _has_c_module = False

    def run(self) -> None:
        """Build both."""
        super().run()
        if not self._has_c_module:
            sys.stderr.write(
                f"{_C_MODULE}, the C module, is not built. Clients need none; without it a daemon serves all data itself, "
                "and its mount ends with it. It takes gcc and Python's headers. On Debian: apt-get install gcc libc6-dev "
                "python3-dev\n"
            )
            self._make_wheel_pure()
        jar = Path(self.build_lib, _JAR)
        problem = _build_jar(jar)
        if problem:
            sys.stderr.write(
                f"{jar.name} is not built: {problem}. All else works without it; Spark then copies state files it could "
                "link. On Debian: apt-get install default-jdk-headless\n"
            )

    def build_extension(self, ext: Extension) -> None:
        """Build the C module. Raises ``CompileError``, which is passed over if the module is optional."""
        Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)  # an earlier build's would get into the wheel
        if _wanted() == "none":
            raise CompileError("HOLDFAST_C_MODULE=none leaves it out")
        super().build_extension(ext)
        self._has_c_module = True

    def _make_wheel_pure(self) -> None:
        """Let the wheel be one for every platform and Python, as nothing in it is for one alone."""
        self.distribution.ext_modules = []
        wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
        if wheel is not None:
            wheel.root_is_pure = True


def _wanted() -> str:
    """Return whether the C module is ``required``, ``none``, or built if it can be: empty."""
    wanted = os.environ.get("HOLDFAST_C_MODULE", "")
    if wanted not in ("", "none", "required"):
        raise SystemExit(f"HOLDFAST_C_MODULE={wanted}: allowed are required and none")
    return wanted


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
            _C_MODULE,
            sources=sorted(map(str, _NATIVE.glob("*.c"))),
            depends=sorted(map(str, _NATIVE.glob("*.h"))),
            define_macros=[("_GNU_SOURCE", "1")],
            # Only what others must find is visible: pyfuse3's libfuse looks names up here first.
            extra_compile_args=["-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"],
            optional=_wanted() != "required",
        )
    ],
)
