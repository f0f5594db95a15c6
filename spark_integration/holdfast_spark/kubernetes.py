"""The template of executors' pods on Kubernetes, whose volumes and environment Spark's own settings can't express.

``python -m holdfast_spark.kubernetes APPLICATION`` prints it, for ``spark.kubernetes.executor.podTemplateFile`` or to be
merged into a template that is there already; ``configure(…, kubernetes=True)`` uses it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from holdfast_spark.placement.driver import NODE_ATTRIBUTE

MOUNTPOINT = "/mnt/holdfast"
"""The place of the mount in pods, and by default on nodes: paths of checkpoints are the same for drivers and executors."""
_CONTAINER = "executor"
_DRIVER = "holdfast.csi"
_LOCAL = "/var/holdfast/local"


def executor_template(application: str, mountpoint: str = MOUNTPOINT, uid: int = -1, gid: int = -1) -> str:
    """Return the template: the node's name as an attribute, the mount, and a working directory for Spark's local files.

    The volume of the directory takes the first that is free of ``executor_<application>-0``, ``-1``, … on the pod's node,
    which belongs to ``uid`` and ``gid``. A new executor finds there what one before it has left.
    """
    directory = {"workdir": f"executor/{application}", "slots": "true", "uid": str(uid), "gid": str(gid)}
    return f"""\
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: {_CONTAINER}
      env:
        - name: SPARK_EXECUTOR_ATTRIBUTE_{NODE_ATTRIBUTE}
          valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}
        - {{name: HOLDFAST_MOUNT, value: {json.dumps(mountpoint)}}}
      volumeMounts:
        - {{name: holdfast, mountPath: {json.dumps(mountpoint)}}}
        - {{name: spark-local-dir-1, mountPath: {_LOCAL}, subPath: tmp}}
  volumes:
    - name: holdfast
      csi: {{driver: {_DRIVER}}}
    - name: spark-local-dir-1  # Spark takes volumes of such names for its local files
      csi: {{driver: {_DRIVER}, volumeAttributes: {json.dumps(directory)}}}
"""


def template_settings(file: Path, application: str, mountpoint: str) -> dict[str, str]:
    """Write the template to ``file``, for executors of this process's user; return the settings that name it."""
    file.write_text(executor_template(application, mountpoint, os.getuid(), os.getgid()))
    prefix = "spark.kubernetes.executor.podTemplate"
    return {f"{prefix}File": str(file), f"{prefix}ContainerName": _CONTAINER}


def main() -> None:
    """Print the template."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast_spark.kubernetes", description="Print the executors' template."
    )
    parser.add_argument("application", help="of the executors' working directories: letters, digits, - and _")
    parser.add_argument("--mountpoint", default=MOUNTPOINT, help="of Holdfast, in the pods (default: %(default)s)")
    parser.add_argument(
        "--uid", type=int, default=185, help="who the executors run as (default: %(default)s, as in Spark's image)"
    )
    parser.add_argument("--gid", type=int, default=0, help="default: %(default)s, as in Spark's image")
    options = parser.parse_args()
    sys.stdout.write(executor_template(options.application, options.mountpoint, options.uid, options.gid))


if __name__ == "__main__":
    main()
