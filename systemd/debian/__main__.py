"""``./run deb``: build the Debian package for this release of Debian and this processor."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from holdfast import __version__
from systemd.debian.package_tree import PackageTree

_CHECKOUT = Path(__file__).parents[2]
_SCRIPTS = ("postinst", "prerm", "postrm")
_PACKAGED = ("daemon", "docs", "spark_integration", "systemd")
_CONFIGURATION = "/etc/holdfast/holdfast.toml"
_BY_HAND = ("fuse3", "systemd | systemd-standalone-sysusers", "systemd | systemd-standalone-tmpfiles")
"""Dependencies beside Python and the libraries that are linked."""


def main() -> int:
    """Build the package; print its path."""
    parser = argparse.ArgumentParser(prog="./run deb", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=_CHECKOUT / "dist", help="the directory to put it in (default: dist/)"
    )
    parser.add_argument("--version", default=_package_version(), help="the package's version (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-deb-") as directory:
        built = _build(Path(directory), options.version)
        options.output.mkdir(parents=True, exist_ok=True)
        package = options.output / built.name
        shutil.copyfile(built, package)
    sys.stdout.write(f"{package}\n")
    return 0


def _build(directory: Path, version: str) -> Path:
    root = directory / "root"
    root.mkdir()
    tree = PackageTree(root, _CHECKOUT)
    tree.make(_changelog(version), _commit_time().year)
    control = root / "DEBIAN"
    control.mkdir(mode=0o755)
    architecture = _output("dpkg", "--print-architecture")
    fields = {
        "version": version,
        "architecture": architecture,
        "maintainer": _maintainer(),
        "installed_kib": _size_kib(root),
        "depends": ", ".join([tree.python, *_BY_HAND, *_library_packages(directory, tree.libraries())]),
    }
    debian = _CHECKOUT / "systemd/debian"
    (control / "control").write_text((debian / "control").read_text().format_map(fields))
    (control / "conffiles").write_text(f"{_CONFIGURATION}\n")
    (control / "md5sums").write_text(
        _output("sh", "-c", f"cd {root} && find usr -type f -print0 | sort -z | xargs -0 md5sum") + "\n"
    )
    for name in _SCRIPTS:
        shutil.copyfile(debian / name, control / name)
        (control / name).chmod(0o755)
    package = directory / f"holdfast_{version}_{architecture}.deb"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(int(_commit_time().timestamp()))}
    command = ["dpkg-deb", "--root-owner-group", "--build", str(root), str(package)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return package


def _library_packages(directory: Path, libraries: list[Path]) -> list[str]:
    """Return the packages with the libraries that these need, with versions, as dpkg-shlibdeps finds them."""
    (directory / "debian").mkdir()
    (directory / "debian/control").write_text("Source: holdfast\n\nPackage: holdfast\nArchitecture: any\n")
    private = {f"-l{library.parent}" for library in libraries}
    command = ["dpkg-shlibdeps", "-O", "--warnings=0", *sorted(private), *(f"-e{library}" for library in libraries)]
    found = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout
    return [package.strip() for package in found.partition("shlibs:Depends=")[2].split(",")]


def _package_version() -> str:
    """Return the version with the time and name of the commit, and the release of Debian: a later build is an upgrade.

    Without git, as in an unpacked archive, it is a version of the same form, so that it sorts by time among the others.
    """
    release = platform.freedesktop_os_release().get("VERSION_ID", "0")
    commit = _git("rev-parse", "--short=10", "HEAD")
    name = f".{commit}" if commit else ""
    return f"{__version__}+git{_commit_time():%Y%m%d%H%M%S}{name}~deb{release}"


def _commit_time() -> datetime:
    """Return the time of the commit; outside of a repository, that of the newest file, which an archive has from it."""
    seconds = _git("show", "--no-patch", "--format=%ct", "HEAD") or _newest_change()
    return datetime.fromtimestamp(int(seconds), UTC)


def _newest_change() -> float:
    places = [_CHECKOUT / name for name in ("CHANGELOG.md", "pyproject.toml", *_PACKAGED)]
    files = (file for place in places for file in (place.rglob("*") if place.is_dir() else [place]))
    return max(file.stat().st_mtime for file in files if file.is_file() and "__pycache__" not in file.parts)


def _changelog(version: str) -> str:
    date = format_datetime(_commit_time())
    return (
        f"holdfast ({version}) stable; urgency=medium\n\n  * changelog.gz says what is new.\n\n -- {_maintainer()}  {date}\n"
    )


def _maintainer() -> str:
    """Return whose package it is, as Debian's own tools are told (debchange(1))."""
    return f"{os.environ.get('DEBFULLNAME', 'Holdfast')} <{os.environ.get('DEBEMAIL', 'holdfast@example.org')}>"


def _size_kib(root: Path) -> int:
    return sum(path.lstat().st_size for path in root.rglob("*")) // 1024


def _git(*arguments: str) -> str:
    """Return git's output; empty without git, or outside of a repository."""
    if shutil.which("git") is None:
        return ""
    found = subprocess.run(["git", "-C", str(_CHECKOUT), *arguments], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
