"""The kernels that tests need: on an older one they are skipped, with that reason."""

from __future__ import annotations

import pytest

from holdfast.kernel import Machine
from holdfast.kernel.probe import has_passthrough

_REASON = "needs Linux 6.9: passthrough and takeover"
_LACKS = not has_passthrough(Machine.this().kernel)

needs_takeover = pytest.mark.skipif(_LACKS, reason=_REASON)


def need_takeover() -> None:
    """Skip the test where no mount outlives its daemon, and the kernel reads no file by itself."""
    if _LACKS:
        pytest.skip(_REASON)
