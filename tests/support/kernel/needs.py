"""The kernels that tests need: on an older one they are skipped, with that reason."""

from __future__ import annotations

import pytest

from holdfast.kernel import Machine
from holdfast.kernel.probe import has_passthrough

_REASON = "needs Linux 6.9: passthrough and takeover"

HAS_TAKEOVER = has_passthrough(Machine.this().kernel)
"""True if a mount can outlive its daemon here, and the kernel read files by itself."""

needs_takeover = pytest.mark.skipif(not HAS_TAKEOVER, reason=_REASON)


def need_takeover() -> None:
    """Skip the test where no mount outlives its daemon, and the kernel reads no file by itself."""
    if not HAS_TAKEOVER:
        pytest.skip(_REASON)
