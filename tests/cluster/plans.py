"""What a node sees: the files, users and tools in its name spaces."""

from __future__ import annotations

import grp
import importlib.util
import json
import pwd
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast_spark.env import spark_env_path
from tests.cluster.node_init import Plan
from tests.cluster.settings import CONTROL_SOCKET, GROUP, MASTER, MOUNTPOINT, TOOLS, USER, Settings

_ROOT = Path(__file__).parents[2]
_LIKELY_FREE_ID = 61_077
_SITE_PACKAGES = Path("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
PYTHON = str(TOOLS / "venv/bin/python")
SPARK_HOME = str(TOOLS / "venv" / _SITE_PACKAGES / "pyspark")
CONF = TOOLS / "conf"
JAR = TOOLS / "extension/holdfast_spark_jvm/holdfast-spark.jar"


@dataclass(frozen=True)
class Accounts:
    """The ids of the user and the group on all nodes, and the lines that make them known where the machine lacks them."""

    uid: int
    gid: int
    holdfast_gid: int
    lines: Mapping[str, list[str]]

    @classmethod
    def found_or_made_up(cls) -> Accounts:
        """Take the machine's accounts; where it has none, ids that nobody here has."""
        lines: dict[str, list[str]] = {"/etc/passwd": [], "/etc/group": []}
        uid = gid = holdfast_gid = 0
        with suppress(KeyError):
            user = pwd.getpwnam(USER)
            uid, gid = user.pw_uid, user.pw_gid
        if not uid:
            uid = gid = _free_id(_LIKELY_FREE_ID)
            lines["/etc/passwd"].append(f"{USER}:x:{uid}:{gid}:Spark:{TOOLS / 'home'}:/bin/bash")
            lines["/etc/group"].append(f"{USER}:x:{gid}:")
        with suppress(KeyError):
            holdfast_gid = grp.getgrnam(GROUP).gr_gid
        if not holdfast_gid:
            holdfast_gid = _free_id(uid + 1)
            lines["/etc/group"].append(f"{GROUP}:x:{holdfast_gid}:{USER}")
        return cls(uid, gid, holdfast_gid, lines)


def plan(
    hostname: str,
    address: str,
    settings: Settings,
    accounts: Accounts,
    files: Mapping[str, tuple[str, int]],
    disk: Path | None = None,
    image: Path | None = None,
) -> Plan:
    """Return a node's view. ``files`` are added to those that every node has."""
    hosts = ["127.0.0.1 localhost", f"{MASTER} master"]
    hosts += [f"{settings.address(number)} {settings.name(number)}" for number in range(1, settings.nodes + 1)]
    commands = {"holdfast": 'holdfast "$@"', "holdfast-spark-driver": "holdfast_spark.companion"}
    return Plan(
        hostname=hostname,
        directories=[str(MOUNTPOINT), str(CONTROL_SOCKET.parent)],
        binds={
            str(TOOLS / "venv"): sys.prefix,
            str(TOOLS / "checkout"): str(_ROOT),
            str(TOOLS / "extension"): str(_extension()),
        },
        files={
            "/etc/hostname": (f"{hostname}\n", 0o644),
            "/etc/hosts": ("\n".join([*hosts, ""]), 0o644),
            **{
                str(TOOLS / "bin" / name): (f"#!/bin/sh\nexec {PYTHON} -P -m {module}\n", 0o755)
                for name, module in commands.items()
            },
            str(CONF / "spark-env.sh"): (f'. "{_inside(spark_env_path())}"\n', 0o644),
            **files,
        },
        lines=dict(accounts.lines),
        disk=str(disk or ""),
        image=str(image or ""),
    )


def spark_defaults(settings: Settings, master_url: str) -> tuple[str, int]:
    """Return Spark's ``spark-defaults.conf`` and its mode."""
    lines = {
        "spark.master": master_url,
        "spark.executor.memory": settings.executor_memory,
        "spark.executor.cores": str(settings.executor_cores),
        "spark.sql.shuffle.partitions": str(settings.partitions),
        "spark.ui.showConsoleProgress": "false",
        **dict(settings.spark),
    }
    return "".join(f"{key} {value}\n" for key, value in lines.items()), 0o644


def environment(address: str, home: Path, name: str = "") -> dict[str, str]:
    """Return the environment of everything that runs on a node."""
    checkout = TOOLS / "checkout"
    python_path = [TOOLS / "extension", checkout / "daemon", checkout / "spark_integration", checkout]
    return {
        "HOME": str(home),
        "PATH": f"{TOOLS}/bin:{TOOLS}/venv/bin:{SPARK_HOME}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": ":".join(map(str, python_path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "TMPDIR": str(home),
        "SPARK_HOME": SPARK_HOME,
        "SPARK_CONF_DIR": str(CONF),
        "SPARK_LOCAL_IP": address,
        "SPARK_LOCAL_HOSTNAME": address,
        **({"SPARK_EXECUTOR_ATTRIBUTE_NODE": name} if name else {}),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": PYTHON,
        "JDK_JAVA_OPTIONS": f"-XX:-UsePerfData -Djava.io.tmpdir={home}",  # nothing in /tmp, which is not the node's own
    }


def daemon_configuration(
    settings: Settings, accounts: Accounts, store: Path, urls: Mapping[str, str], options: Mapping[str, str]
) -> tuple[str, int]:
    """Return ``holdfast.toml`` and its mode. ``options`` are those of the stores, credentials included."""
    lines = [f'mount.mountpoint = "{MOUNTPOINT}"', f"store.directory = {json.dumps(str(store))}"]
    lines += ["cache.min_free_bytes = 0"]
    for name, url in urls.items():
        lines += [f"stores.{name}.url = {json.dumps(url)}"]
        lines += [f"stores.{name}.{key} = {value}" for key, value in (("uid", accounts.uid), ("gid", accounts.gid))]
        lines += [f"stores.{name}.options.{key} = {json.dumps(value)}" for key, value in options.items()]
    lines += [f"{key} = {value}" for key, value in settings.options]
    return "".join(f"{line}\n" for line in lines), 0o600


def _inside(path: Path) -> Path:
    """Return where a node sees a file of the checkout."""
    return Path(TOOLS, "checkout", path.relative_to(_ROOT))


def _extension() -> Path:
    found = importlib.util.find_spec("_holdfast_kernel")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _free_id(first: int) -> int:
    taken = {entry.pw_uid for entry in pwd.getpwall()} | {entry.gr_gid for entry in grp.getgrall()}
    return next(number for number in range(first, 65_000) if number not in taken)
