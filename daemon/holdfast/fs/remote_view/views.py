"""What this node believes of the stores, and shows of them."""

from __future__ import annotations

import time

from holdfast.fs.foundation import Foundation
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.remote_view.fallback_guard import FallbackGuard
from holdfast.fs.remote_view.object_copies import ObjectCopies
from holdfast.fs.remote_view.object_times import ObjectTimes
from holdfast.fs.remote_view.revalidation import Revalidation
from holdfast.fs.remote_view.visibility import Visibility
from holdfast.fs.remote_view.whiteouts import Whiteouts


class Views:
    """Puts the parts of ``remote_view`` together."""

    def __init__(self, base: Foundation) -> None:
        parts = base.parts
        self.hints = CreateHints(time.monotonic)
        self.whiteouts = Whiteouts(base.view, parts.index.marks, base.ttl)
        self.visibility = Visibility(base.view, parts.index.marks, self.whiteouts, parts.zones.top_names)
        self.guard = FallbackGuard(base)
        self.times = ObjectTimes(base)
        self.object_copies = ObjectCopies(parts.index.entries, base.copies, parts.store.tree, self.times)
        self.revalidation = Revalidation(base.view, base.policy, self.whiteouts, base.ttl, parts.events)
