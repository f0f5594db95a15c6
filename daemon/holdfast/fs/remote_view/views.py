"""The view of the stores: what this node believes of them, and shows."""

from __future__ import annotations

import time

from holdfast.fs.foundation import Foundation
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.remote_view.fallback_guard import FallbackGuard
from holdfast.fs.remote_view.object_copies import ObjectCopies
from holdfast.fs.remote_view.object_times import ObjectTimes
from holdfast.fs.remote_view.revalidation import Revalidation
from holdfast.fs.remote_view.visibility import Visibility, Whiteouts


class Views:
    """Puts the parts of ``remote_view`` together."""

    def __init__(self, base: Foundation) -> None:
        self.hints = CreateHints(time.monotonic)
        self.whiteouts = Whiteouts(base)
        self.visibility = Visibility(base, self.whiteouts)
        self.guard = FallbackGuard(base)
        self.times = ObjectTimes(base)
        self.object_copies = ObjectCopies(base, self.times)
        self.revalidation = Revalidation(base, self.whiteouts)
