"""The first program of Spark's pods, in place of that of Spark's image: ``driver ARGS…`` or ``executor``, as Spark says."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Become Spark's own program."""
    role, *arguments = sys.argv[1:]
    command = _driver(arguments) if role == "driver" else _executor()
    os.execvp(command[0], command)


def _driver(arguments: list[str]) -> list[str]:
    """There is no name service, so the driver calls itself by its pod's address."""
    address = os.environ["SPARK_DRIVER_BIND_ADDRESS"]
    here = ["--conf", f"spark.driver.bindAddress={address}", "--conf", f"spark.driver.host={address}"]
    return [f"{os.environ['SPARK_HOME']}/bin/spark-submit", *here, "--deploy-mode", "client", *arguments]


def _executor() -> list[str]:
    told = os.environ
    options = [value for name, value in sorted(told.items()) if name.startswith("SPARK_JAVA_OPT_")]
    memory = [f"-Xms{told['SPARK_EXECUTOR_MEMORY']}", f"-Xmx{told['SPARK_EXECUTOR_MEMORY']}"]
    jars = f"{told.get('SPARK_CLASSPATH', '')}:{told['SPARK_HOME']}/jars/*"
    names = {
        "driver-url": "SPARK_DRIVER_URL",
        "executor-id": "SPARK_EXECUTOR_ID",
        "cores": "SPARK_EXECUTOR_CORES",
        "app-id": "SPARK_APPLICATION_ID",
        "hostname": "SPARK_EXECUTOR_POD_IP",
        "resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "podName": "SPARK_EXECUTOR_POD_NAME",
    }
    settings = [word for option, name in names.items() for word in (f"--{option}", told[name])]
    backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    return ["java", *options, *memory, "-cp", jars, backend, *settings]


if __name__ == "__main__":
    main()
