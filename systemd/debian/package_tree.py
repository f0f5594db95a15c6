"""The tree of the package, as it will lie below ``/`` of a node.

``/usr/lib/holdfast`` is a virtual environment with the release's own Python: its place is written in one file, so it can be
made here and used there. Modules are compiled to bytecode on the node, as Debian's own are.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

from typer.completion import get_completion_script  # type: ignore[attr-defined]  # it has no better place
from typer.core import TyperGroup
from typer.main import get_command

from holdfast import extras
from holdfast.cli.app import app
from holdfast.process.main import command_line_parser
from holdfast_spark.linking import jar_path
from systemd.debian import man_pages
from systemd.debian.runtime_files import copy_distribution, copy_package, licence_of, runtime_distributions

_HOME = "usr/lib/holdfast"
_WHEEL_HOME = "/opt/holdfast/bin/"
"""The directory in which the units in ``systemd/`` look for the programs, because install.md puts the wheel there."""
_UNITS = ("holdfastd.service", "holdfast-sweep.service", "holdfast-sweep.timer", "spark-worker@.service")
_COMMANDS = {"holdfast": ("usr/bin", "holdfast.cli", "main"), "holdfastd": ("usr/sbin", "holdfast.daemon", "run")}
_COMPANION = "holdfast-spark-driver"
"""The plugin for Spark looks for it in ``/usr/lib/holdfast/bin``."""
_CSI = "holdfast-csi"
"""An image for Kubernetes adds what it needs (``systemd/kubernetes/image.py``)."""
_DRIVER_PYTHON = "holdfast-pyspark"
DRIVER_PYTHON_TEXT = """\
#!/bin/sh
# Runs the jobs of spark-submit by Spark's own Python, which must find holdfast_spark (docs/install.md, docs/spark.md).
exec "${PYSPARK_PYTHON:-python3}" -P -m holdfast_spark.driver_python "$@"
"""
_COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/holdfast",
    "zsh": "usr/share/zsh/vendor-completions/_holdfast",
    "fish": "usr/share/fish/vendor_completions.d/holdfast.fish",
}
_PROGRAM = 0o755
_FILE = 0o644


class PackageTree:
    """Makes the tree in the empty directory ``root`` from the ``checkout``."""

    def __init__(self, root: Path, checkout: Path) -> None:
        self._root = root
        self._checkout = checkout
        self._home = root / _HOME
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.python = python
        self._site = self._home / "lib" / python / "site-packages"

    def make(self, changelog: str, year: int) -> None:
        """Make everything but the control files. ``changelog`` is the text of Debian's own, ``year`` the copyright's."""
        self._environment()
        self._commands()
        self._service_files()
        self._manual()
        self._documents(changelog, year)
        self._set_modes()

    def libraries(self) -> list[Path]:
        """Return the programs and libraries of machine code."""
        return sorted(path for path in self._site.rglob("*.so*") if path.is_file())

    def _environment(self) -> None:
        self._site.mkdir(parents=True)
        for distribution in self._distributions().values():
            copy_distribution(distribution, self._site)
        copy_package(self._checkout / "daemon/holdfast", self._site)
        copy_package(self._checkout / "spark_integration/holdfast_spark", self._site)
        import _holdfast_kernel

        shutil.copy(str(_holdfast_kernel.__file__), self._site)
        self._jar()
        for library in self.libraries():
            subprocess.run(["strip", "--strip-unneeded", "--remove-section=.comment", str(library)], check=True)
        self._write(
            f"{_HOME}/pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {_version()}\n"
        )
        self._link(f"{_HOME}/bin/python3", f"../../../bin/{self.python}")
        self._link(f"{_HOME}/bin/python", "python3")
        self._link(f"{_HOME}/spark", f"lib/{self.python}/site-packages")

    def _distributions(self) -> dict[str, Distribution]:
        return runtime_distributions(self._checkout / "pyproject.toml", extras.DAEMON)

    def _jar(self) -> None:
        """Copy the jar for Spark, which properties files name by a path that does not change."""
        jar = jar_path()
        if jar is None:
            raise SystemExit("./run deb: holdfast-spark.jar was not built; it takes a JDK (default-jdk-headless)")
        place = self._root / "usr/share/holdfast"
        place.mkdir(parents=True)
        shutil.copyfile(jar, place / jar.name)
        found = self._site / jar.parent.name / jar.name
        self._link(str(found.relative_to(self._root)), os.path.relpath(place / jar.name, found.parent))

    def _commands(self) -> None:
        for name, (place, module, function) in _COMMANDS.items():
            self._program(name, module, function)
            self._link(f"{place}/{name}", f"../lib/holdfast/bin/{name}")
        self._program(_COMPANION, "holdfast_spark.companion.conversation", "main")
        self._program(_CSI, "holdfast.csi", "run")
        self._write(f"{_HOME}/bin/{_DRIVER_PYTHON}", DRIVER_PYTHON_TEXT, _PROGRAM)
        for shell, path in _COMPLETIONS.items():
            script = get_completion_script(prog_name="holdfast", complete_var="_HOLDFAST_COMPLETE", shell=shell)
            self._write(path, script.replace(" --no-files", "") + "\n")

    def _program(self, name: str, module: str, function: str) -> None:
        text = f"#!/{_HOME}/bin/python3 -P\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
        self._write(f"{_HOME}/bin/{name}", text, _PROGRAM)

    def _service_files(self) -> None:
        units, debian = self._checkout / "systemd", self._checkout / "systemd/debian"
        for unit in _UNITS:
            text = (units / unit).read_text().replace(_WHEEL_HOME, f"/{_HOME}/bin/")
            self._write(f"usr/lib/systemd/system/{unit}", text)
        self._write("usr/lib/sysusers.d/holdfast.conf", (units / "holdfast.sysusers").read_text())
        self._write("usr/lib/tmpfiles.d/holdfast.conf", (units / "holdfast.tmpfiles").read_text())
        self._write("etc/holdfast/holdfast.toml", (debian / "holdfast.toml").read_text())
        self._write("usr/share/lintian/overrides/holdfast", (debian / "lintian-overrides").read_text())

    def _manual(self) -> None:
        command = get_command(app)
        assert isinstance(command, TyperGroup)
        configuration = (self._checkout / "docs/configuration.md").read_text()
        for page in (
            *man_pages.command_pages(command, "holdfast"),
            man_pages.daemon_page(command_line_parser()),
            man_pages.configuration_page(configuration),
        ):
            self._compressed(f"usr/share/man/man{page.section}/{page.name}.{page.section}.gz", page.text)

    def _documents(self, changelog: str, year: int) -> None:
        place = "usr/share/doc/holdfast"
        shutil.copytree(self._checkout / "docs", self._root / place / "docs")
        shutil.copy(self._checkout / "README.md", self._root / place)
        self._compressed(f"{place}/changelog.gz", (self._checkout / "CHANGELOG.md").read_text())
        self._compressed(f"{place}/changelog.Debian.gz", changelog)
        self._write(f"{place}/copyright", self._copyright(year))

    def _copyright(self, year: int) -> str:
        lines = [
            f"Copyright {year} the authors of Holdfast",
            "License: Apache-2.0; on Debian, its text is in /usr/share/common-licenses/Apache-2.0.",
            "",
            f"/{_HOME}/lib contains these packages of others, each with its licence in its .dist-info directory.",
            "",
        ]
        for name, distribution in self._distributions().items():
            lines.append(f"  {name} {distribution.version}: {licence_of(distribution)}")
        return "\n".join(lines) + "\n"

    def _write(self, path: str, text: str, mode: int = _FILE) -> None:
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def _compressed(self, path: str, text: str) -> None:
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(text.encode(), mtime=0))

    def _link(self, path: str, target: str) -> None:
        link = self._root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)

    def _set_modes(self) -> None:
        """Give everything the modes that Debian wants, whatever the umask and the copied files had."""
        programs = {self._home / "bin" / name for name in (*_COMMANDS, _COMPANION, _CSI, _DRIVER_PYTHON)}
        for directory, _, names in os.walk(self._root):
            Path(directory).chmod(0o755)
            for path in (Path(directory, name) for name in names):
                if not path.is_symlink():
                    path.chmod(_PROGRAM if path in programs else _FILE)


def _version() -> str:
    return ".".join(map(str, sys.version_info[:3]))
