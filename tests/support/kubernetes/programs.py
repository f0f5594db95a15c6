"""Kubernetes' own programs, built once from its Go module, and Debian's etcd and plugins for containers' networks.

Nothing is installed: all of it is in ``$HOLDFAST_CACHE``. A build takes some twelve minutes of processor time. containerd is
the system's; a newer one is built where a test needs it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.stores.versitygw import versitygw_binary
from tests.support.tools.cache import cache_directory, locked
from tests.support.tools.go_programs import BuildError, go_program

VERSION = "v1.34.4"
MODULE = f"k8s.io/kubernetes@{VERSION}"
BUILT = ("kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
_STAGED = re.compile(r"^\s*(\S+) => \./staging/", re.MULTILINE)
_CONTAINERD = ("github.com/containerd/containerd/v2", "v2.4.2")
_OF_CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
SPARK_OPERATOR = "github.com/kubeflow/spark-operator/v2@v2.5.1"
_REPLACED = re.compile(r"^replace \(.*?^\)", re.MULTILINE | re.DOTALL)
_RUNC = ("github.com/opencontainers/runc", "v1.5.0")


def module_directory(module: str = MODULE) -> Path:
    """Return where the source of a Go module is, fetched if need be; by default Kubernetes'. Raises ``BuildError``."""
    try:
        told = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BuildError(f"there is no Go, which fetches {module}") from None
    if told.returncode != 0:
        raise BuildError(f"can't fetch {module}: {told.stdout}{told.stderr}")
    return Path(json.loads(told.stdout)["Dir"])


def kubernetes_programs() -> Path:
    """Return the directory with the programs in ``BUILT``. Raises ``BuildError``."""
    return _built(f"kubernetes-{VERSION}", BUILT, _of_kubernetes)


def newer_containers() -> Path:
    """Return the directory with a containerd and a runc that know user namespaces. Raises ``BuildError``."""
    return _built(f"containerd-{_CONTAINERD[1]}", (*_OF_CONTAINERD, "runc"), _of_containers)


def operator_program() -> Path:
    """Return spark-operator. Raises ``BuildError``."""
    return _built(f"spark-operator-{SPARK_OPERATOR.rpartition('@')[2]}", ["spark-operator"], _of_operator) / "spark-operator"


def get_all() -> None:
    """Get all that is missing, which takes a network: a cluster is in one of its own. Raises ``BuildError``."""
    kubernetes_programs()
    for package in ("etcd-server", "containernetworking-plugins"):
        debian_files(package)
    helm_program()
    versitygw_binary()


@dataclass(frozen=True)
class _Build:
    """The source of a program: a package of a module, with more lines of the file ``go.mod``, options and variables."""

    package: str
    module: tuple[str, str]
    lines: str = ""
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def _of_kubernetes(name: str) -> _Build:
    """The modules that Kubernetes has in its own source are those that it has published."""
    published = VERSION.replace("v1.", "v0.", 1)
    staged = _STAGED.findall((module_directory() / "go.mod").read_text())
    lines = "\n".join(f"replace {each} => {each} {published}" for each in staged)
    numbers = {"gitVersion": VERSION, "gitMajor": "1", "gitMinor": VERSION.split(".")[1]}
    told = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in numbers.items())
    module = ("k8s.io/kubernetes", VERSION)
    return _Build(f"k8s.io/kubernetes/cmd/{name}", module, lines, ("-ldflags", f"-s -w {told}"), {"CGO_ENABLED": "0"})


def _of_operator(_name: str) -> _Build:
    """It names versions of other modules that those who require it have to name too."""
    (replaced,) = _REPLACED.findall((module_directory(SPARK_OPERATOR) / "go.mod").read_text())
    module, _, version = SPARK_OPERATOR.partition("@")
    return _Build(f"{module}/cmd/operator", (module, version), replaced, ("-ldflags", "-s -w"), {"CGO_ENABLED": "0"})


def _of_containers(name: str) -> _Build:
    if name == "runc":
        return _runc()
    return _Build(f"{_CONTAINERD[0]}/cmd/{name}", _CONTAINERD, environment={"CGO_ENABLED": "0"})


def _runc() -> _Build:
    files = debian_files("libseccomp-dev")
    (libraries,) = files.glob("usr/lib/*/libseccomp.a")
    flags = {"CGO_CFLAGS": f"-I{files}/usr/include", "CGO_LDFLAGS": f"-L{libraries.parent}"}
    environment = {"CGO_ENABLED": "1", "PKG_CONFIG_PATH": f"{libraries.parent}/pkgconfig", **flags}
    return _Build(_RUNC[0], _RUNC, options=("-tags", "seccomp"), environment=environment)


def _built(directory_name: str, names: Sequence[str], described: Callable[[str], _Build]) -> Path:
    directory = cache_directory() / directory_name
    if not all((directory / name).exists() for name in names):
        with locked(directory.with_name(f"{directory_name}.lock")):
            directory.mkdir(exist_ok=True)
            for name in names:
                if not (directory / name).exists():
                    _build(directory / name, described(name))
    return directory


def _build(binary: Path, build: _Build) -> None:
    with tempfile.TemporaryDirectory(dir=binary.parent) as directory:
        required = " ".join(build.module)
        Path(directory, "go.mod").write_text(f"module build\n\ngo 1.24.0\n\nrequire {required}\n\n{build.lines}\n")
        options = ["-mod=mod", "-trimpath", "-buildvcs=false", *build.options, "-o", f"{directory}/built"]
        environment = {**os.environ, "GOFLAGS": "", **build.environment}
        print(f"building {binary.name} {build.module[1]}, once; it takes some minutes", file=sys.stderr, flush=True)
        command = ["go", "build", *options, build.package]
        built = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
        if built.returncode != 0:
            raise BuildError(f"building {binary.name} failed:\n{built.stderr}")
        Path(directory, "built").rename(binary)


def debian_files(package: str) -> Path:
    """Return a directory with the files of a package of Debian's, which apt-get fetches once. Raises ``BuildError``."""
    directory = cache_directory() / f"debian-{package}"
    if not directory.exists():
        with locked(directory.with_name(f"{directory.name}.lock")):
            if not directory.exists():
                _unpack(package, directory)
    return directory


def _unpack(package: str, directory: Path) -> None:
    with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
        command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", package]
        fetched = subprocess.run(command, cwd=temporary, capture_output=True, text=True, check=False)
        if fetched.returncode != 0:
            raise BuildError(f"can't fetch {package}: {fetched.stderr}")
        (archive,) = Path(temporary).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, f"{temporary}/files"], check=True)
        Path(temporary, "files").rename(directory)


def program(name: str) -> Path:
    """Return a program of the system's, or one of ``BUILT`` and kubectl. Raises ``BuildError``."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        raise BuildError(f"there is no {name}")
    return Path(found)


def helm_program() -> Path:
    """Return helm. Raises ``BuildError``."""
    return go_program("helm", _HELM)
