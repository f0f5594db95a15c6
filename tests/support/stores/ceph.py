"""Ceph's S3 server (radosgw) on a Ceph of one monitor and one OSD in memory, from Debian's packages.

They and what they depend on are unpacked in the cache: nothing is installed, and none runs but the tests' own. All of it is
on the loopback, keeps its objects in memory, and ends with whoever has started it. ``python -m tests.support.stores.ceph``
makes sure that the packages are there.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config  # type: ignore[import-untyped]

from tests.support.stores.s3 import S3Server
from tests.support.stores.servers import directory_of_server, running, served_by
from tests.support.tools.debian_packages import unpacked

_PACKAGES = ("radosgw", "ceph-mon", "ceph-osd")
_BUCKET = "bucket"
_SETTINGS = """
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{port}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
run dir = {directory}
admin socket =
pid file =
log file = {directory}/$name.log
log to stderr = false
plugin dir = {libraries}/ceph
erasure code dir = {libraries}/ceph/erasure-code
osd class dir = {libraries}/rados-classes
osd class load list = *
osd class default list = *
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 16G
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 0
paxos propose interval = 0.02
paxos min wait = 0.01
mon data = {directory}/mon
osd data = {directory}/osd
rgw data = {directory}/rgw
rgw run sync thread = false
rgw thread pool size = 64
rgw s3 auth use sts = true
rgw sts key = holdfast16bytes!
rgw sts min session duration = 1
"""
_ROLE = "holdfast"
_ASSUMED_BY = {"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/holdfast"]}, "Action": ["sts:AssumeRole"]}
_ALLOWED = {"Effect": "Allow", "Action": ["s3:*"], "Resource": "arn:aws:s3:::*"}


@dataclass(frozen=True)
class Ceph(S3Server):
    """A bucket at a radosgw."""

    pid: int = 0

    @contextmanager
    def locked(self, directory: str, keys: list[str]) -> Iterator[None]:
        """Let the server refuse to delete objects, by a policy of the bucket."""
        del directory
        client = self.client()
        resources = [f"arn:aws:s3:::{self.bucket}/{self.key(key)}" for key in keys]
        denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": resources}
        client.put_bucket_policy(Bucket=self.bucket, Policy=_policy(denied))
        try:
            yield
        finally:
            client.delete_bucket_policy(Bucket=self.bucket)


def session_keys(options: Mapping[str, str], seconds: int) -> dict[str, str]:
    """Return keys with a session token that lasts for so many seconds, of a role that may do everything with objects.

    ``options`` are those of a store at a ``Ceph``. The keys have the names of the AWS tools' files.
    """
    place: Any = {
        "endpoint_url": options["endpoint"],
        "region_name": options["region"],
        "aws_access_key_id": options["access_key_id"],
        "aws_secret_access_key": options["secret_access_key"],
        "config": Config(parameter_validation=False),  # boto3 asks for no less than 15 minutes
    }
    roles = boto3.client("iam", **place)
    with suppress(roles.exceptions.ClientError):  # it is there already, or can't be assumed below
        roles.create_role(RoleName=_ROLE, AssumeRolePolicyDocument=_policy(_ASSUMED_BY))
    roles.put_role_policy(RoleName=_ROLE, PolicyName="objects", PolicyDocument=_policy(_ALLOWED))
    asked = {"RoleArn": f"arn:aws:iam:::role/{_ROLE}", "RoleSessionName": "test", "DurationSeconds": seconds}
    given = boto3.client("sts", **place).assume_role(**asked)["Credentials"]
    return {
        "aws_access_key_id": given["AccessKeyId"],
        "aws_secret_access_key": given["SecretAccessKey"],
        "aws_session_token": given["SessionToken"],
    }


def _policy(statement: Mapping[str, Any]) -> str:
    """Return a policy without spaces, which Ceph does not take in a form."""
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, separators=(",", ":"))


def ceph_packages() -> Path:
    """Return where the packages are unpacked. Raises ``OSError`` or ``subprocess.CalledProcessError`` without them."""
    return unpacked("ceph", _PACKAGES, with_dependencies=True)


@contextmanager
def serving_ceph() -> Iterator[Ceph]:
    """Run a Ceph with an empty bucket until the block ends."""
    packages = ceph_packages()
    libraries = next(packages.glob("usr/lib/*/ceph")).parent
    cluster, disk = str(uuid.uuid4()), str(uuid.uuid4())
    access_key_id, secret_access_key = "HOLDFASTKEY", uuid.uuid4().hex
    with directory_of_server() as directory:
        environment = {
            "LD_LIBRARY_PATH": f"{libraries}:{libraries}/ceph",
            "PYTHONPATH": f"{packages}/usr/lib/python3/dist-packages",
            "CEPH_CONF": str(directory / "conf"),
        }
        within = ["env", *(f"{name}={value}" for name, value in environment.items())]

        def command(program: str, *arguments: str) -> list[str]:
            return [*within, f"{packages}/usr/bin/{program}", *arguments]

        def done(program: str, *arguments: str) -> None:
            subprocess.run(command(program, *arguments), check=True, capture_output=True, timeout=300, cwd=directory)

        def monitor(port: int) -> list[str]:
            settings = _SETTINGS.format(fsid=cluster, port=port, directory=directory, libraries=libraries)
            (directory / "conf").write_text(settings)
            for each in ("mon", "osd", "rgw"):
                (directory / each).mkdir()
            done("monmaptool", "--create", "--fsid", cluster, "--addv", "a", f"[v2:127.0.0.1:{port}]", "map")
            done("ceph-mon", "--mkfs", "-i", "a", "--monmap", "map")
            return command("ceph-mon", "-f", "-i", "a")

        def gateway(port: int) -> list[str]:
            return command("radosgw", "-f", "-n", "client.rgw", f"--rgw-frontends=beast endpoint=127.0.0.1:{port}")

        with served_by(monitor, directory / "mon.out"):
            done("ceph", "osd", "new", disk)
            done("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", disk)
            with running(command("ceph-osd", "-f", "-i", "0"), directory / "osd.out"):
                keys = ["--access-key", access_key_id, "--secret-key", secret_access_key]
                done(
                    "radosgw-admin",
                    "user",
                    "create",
                    "--uid",
                    "holdfast",
                    "--display-name",
                    "holdfast",
                    "--caps",
                    "roles=*",
                    *keys,
                )
                with served_by(gateway, directory / "rgw.out") as (port, pid):
                    server = Ceph(f"http://127.0.0.1:{port}", _BUCKET, "", access_key_id, secret_access_key, pid=pid)
                    server.client().create_bucket(Bucket=_BUCKET)
                    yield server


if __name__ == "__main__":
    ceph_packages()
