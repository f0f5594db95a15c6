"""The rule for ``ui.token``: a page that anybody can connect to needs a secret that nobody can guess. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.config.checking import Key
from holdfast.config.schema import Config

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")


def page_contradictions(config: Config) -> Iterator[tuple[Key, str]]:
    """Yield ``ui.token``, and what to do about it, if it can't protect the page on ``ui.listen``. Does not repeat it."""
    if config.ui.listen and not _TOKEN.fullmatch(config.ui.token):
        what = "it is too short, too long or has other characters" if config.ui.token else "ui.listen needs one"
        yield ("ui", "token"), f"{what}; write 16 to 128 letters, digits, - and _, as 'openssl rand -hex 32' makes them"
