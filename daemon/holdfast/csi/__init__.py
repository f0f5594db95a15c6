"""``holdfast-csi``: the node's driver for Kubernetes' volumes (Container Storage Interface), in a process of its own.

A volume is a directory of the node's one mount, bound to the place that kubelet names. The driver serves nothing of the
mount itself: its end, or a fault in it, touches no pod that runs.
"""

import sys

_OPENSSL = ("ssl", "_hashlib")
"""Modules that asyncio, which grpc imports, http.client and hashlib take if they can, and do without here: they are 5 MB."""


def run() -> None:
    """Run the command; say what to install if it can't be."""
    sys.modules.update(dict.fromkeys(_OPENSSL))  # type: ignore[arg-type] # None: an ImportError to whoever imports it
    try:
        from holdfast.csi.main import main
    except ModuleNotFoundError as missing:
        sys.exit(f"holdfast-csi needs holdfast[csi]: pip install 'holdfast[csi]' (not installed: {missing.name})")
    main()
