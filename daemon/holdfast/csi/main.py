"""The command ``holdfast-csi``."""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import threading
from pathlib import Path
from typing import Any

from holdfast.csi import stubs
from holdfast.csi.controller import NAME, Controller, Identity
from holdfast.csi.leases import Leases
from holdfast.csi.node import Node
from holdfast.csi.serving import CallError, Calls, serve
from holdfast.csi.volumes import Records
from holdfast.errors import HoldfastError
from holdfast.mount.mountpoint import real_path

_SOCKET = "/run/holdfast/control.sock"
_PODS_SOCKET = "/run/holdfast/pods/pods.sock"
_KUBELET = "/var/lib/kubelet"
_LOOK_SECONDS = 60.0
_ATTEMPT_SECONDS = 2.0
_GRACE_SECONDS = 5.0
_log = logging.getLogger("holdfast.csi")


def main() -> None:
    """Serve until SIGTERM."""
    options = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    if not options.node:
        raise SystemExit("holdfast-csi: what is this node called in Kubernetes? Set --node or NODE_NAME")
    try:
        _serve(options)
    except HoldfastError as problem:
        raise SystemExit(f"holdfast-csi: {problem}") from None


def _serve(options: argparse.Namespace) -> None:
    kubelet = Path(options.kubelet)
    directory = Path(options.directory or kubelet / "plugins" / NAME)
    socket = directory / "csi.sock"
    control = Path(options.socket)
    leases = Leases(control, kubelet / "pods")
    records, pods_socket = Records(directory / "volumes"), Path(options.pods_socket)
    node = Node(real_path(options.mountpoint), options.node, records, leases, control, pods_socket)
    services = stubs.csi.DESCRIPTOR.services_by_name
    servers = [
        serve(
            socket,
            (services["Identity"], Identity(node.answering_mount).calls),
            (services["Node"], node.calls),
            (services["Controller"], Controller(directory / "references").calls),
        )
    ]
    if options.register:
        registration = stubs.registration.DESCRIPTOR.services_by_name["Registration"]
        servers.append(serve(kubelet / "plugins_registry" / f"{NAME}-reg.sock", (registration, _registration(socket))))
    _log.info("serving %s on %s", NAME, socket)
    threading.Thread(target=_look_after, args=(node,), daemon=True).start()
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.sigwait(signals)
    for server in servers:
        server.stop(_GRACE_SECONDS).wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="holdfast-csi", description="The node's driver for Kubernetes' volumes.")
    parser.add_argument("--mountpoint", default="/mnt/holdfast", help="of the node's mount (default: %(default)s)")
    parser.add_argument(
        "--node", default=os.environ.get("NODE_NAME", ""), help="its name in Kubernetes (default: $NODE_NAME)"
    )
    parser.add_argument("--kubelet", default=_KUBELET, help="kubelet's directory (default: %(default)s)")
    parser.add_argument("--directory", help=f"for the socket and the records (default: plugins/{NAME} in kubelet's)")
    parser.add_argument("--socket", default=_SOCKET, help="of the node's daemon (default: %(default)s)")
    parser.add_argument("--pods-socket", default=_PODS_SOCKET, help="the daemon's for pods (default: %(default)s)")
    parser.add_argument("--no-registration", dest="register", action="store_false", help="don't announce it to kubelet")
    return parser


def _registration(socket: Path) -> Calls:
    """Return what kubelet asks a plugin that it finds in its directory."""

    def told(asked: Any) -> Any:
        if asked.plugin_registered:
            _log.info("kubelet has registered %s", NAME)
        else:
            _log.error("kubelet does not take %s: %s", NAME, asked.error)
        return stubs.registration.RegistrationStatusResponse()

    about = stubs.registration.PluginInfo(type="CSIPlugin", name=NAME, endpoint=str(socket), supported_versions=["1.0.0"])
    return {"GetInfo": lambda _: about, "NotifyRegistrationStatus": told}


def _look_after(node: Node) -> None:
    """Look after volumes whenever mounts have changed here, until the process ends."""
    with open("/proc/self/mountinfo", "rb") as mounts:
        changes = select.poll()
        changes.register(mounts, select.POLLPRI | select.POLLERR)
        seconds, told = 0.0, ""
        while True:
            changes.poll(seconds * 1000)
            try:
                node.rebind()
                node.sweep()
                seconds, told = _LOOK_SECONDS, ""
            except (HoldfastError, OSError, CallError) as problem:  # the next look tries again
                if str(problem) != told:
                    told = str(problem)
                    _log.warning("volumes can't be looked after: %s", told)
                seconds = _ATTEMPT_SECONDS
