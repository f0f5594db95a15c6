"""Makes an image for Kubernetes from Holdfast's Debian package, without a registry.

``./run python -m systemd.kubernetes.image PACKAGE.deb OUT.tar``, as root: debootstrap(8) makes a small Debian of this
machine's release with what the package depends on, the package is unpacked in it, and pip adds what ``holdfast-csi``
needs, as pinned.
``ctr -n k8s.io images import OUT.tar`` takes the result, and so does ``podman load`` or ``docker load``.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pinned_packages import selected

_ROOT = Path(__file__).parents[2]
_OF_CSI = ("grpcio", "protobuf")
_BESIDES = ("ca-certificates", "e2fsprogs", "mount")
"""Debian packages that the package does not depend on: certificates of stores, chattr(1), umount(8)."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_root(package: Path, root: Path, system: Path | None) -> None:
    """Make the image's files in the directory ``root``; ``system`` is the archive of a Debian that is there already."""
    if system is not None:
        _run("tar", "-C", root, "-xf", system)
    else:
        release = platform.freedesktop_os_release()["VERSION_CODENAME"]
        wanted = ",".join([*_dependencies(package), *_BESIDES])
        _run("debootstrap", "--variant=minbase", f"--include={wanted}", release, root)
        _run("chroot", root, "apt-get", "clean")
    _run("dpkg-deb", "-x", package, root)
    _run("chroot", root, "groupadd", "--system", "--force", "holdfast")
    (site,) = root.glob("usr/lib/holdfast/lib/python3.*/site-packages")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:
        pins.write(selected((_ROOT / "constraints.txt").read_text(), _OF_CSI))
        pins.flush()
        _run(
            sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--target", site, "-r", pins.name
        )
    _run("chroot", root, "/usr/lib/holdfast/bin/python3", "-m", "compileall", "-q", "/usr/lib/holdfast/lib")


def write_image(
    root: Path, out: Path, name: str, command: Sequence[str] = ("holdfast", "--help"), entrypoint: Sequence[str] = ()
) -> None:
    """Write the files in ``root`` as an image of one layer, in the form of ``docker save``.

    It starts ``command``, or what a container has in its place, as the arguments of ``entrypoint``.
    """
    with tempfile.NamedTemporaryFile(dir=out.parent) as layer:
        _run("tar", "-C", root, "--numeric-owner", "--sort=name", "-cf", layer.name, ".")
        with open(layer.name, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        config = json.dumps(
            {
                "architecture": _ARCHITECTURES[platform.machine()],
                "os": "linux",
                "config": {"Env": [_PATH, "LANG=C.UTF-8"], "Entrypoint": list(entrypoint), "Cmd": list(command)},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            }
        ).encode()
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
        with tarfile.open(out, "w") as archive:
            for file, data in ((config_name, config), ("manifest.json", manifest)):
                about = tarfile.TarInfo(file)
                about.size = len(data)
                archive.addfile(about, io.BytesIO(data))
            archive.add(layer.name, "layer.tar")


def _dependencies(package: Path) -> Iterable[str]:
    """Return the Debian packages that the package needs, but for systemd, which no container runs."""
    told = subprocess.run(["dpkg-deb", "-f", package, "Depends"], capture_output=True, text=True, check=True).stdout
    names = (each.split("|")[0].split()[0] for each in told.split(","))
    return sorted({name for name in names if name != "systemd"})


def _run(*command: str | Path) -> None:
    """Run a command; ``./run`` says where bytecode goes, which is not where programs of the image look for it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(command, check=True, env=environment)


def main() -> None:
    """Make the image."""
    parser = argparse.ArgumentParser(prog="python -m systemd.kubernetes.image", description="Make an image for Kubernetes.")
    parser.add_argument("package", type=Path, help="the Debian package, as ./run deb makes it")
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="localhost/holdfast:latest", help="of the image (default: %(default)s)")
    parser.add_argument("--system", type=Path, help="an archive of a Debian that has what the package depends on")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.out.absolute().parent) as directory:
        root = Path(directory, "root")
        root.mkdir(mode=0o755)
        make_root(options.package, root, options.system)
        write_image(root, options.out, options.name)


if __name__ == "__main__":
    main()
