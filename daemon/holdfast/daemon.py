"""``holdfastd``: the daemon's process (``process.main``), or one line about the packages that it lacks."""

from __future__ import annotations

import sys
from typing import NoReturn

from holdfast import extras
from holdfast.supervision.service_manager import NOT_CONFIGURED_STATUS

__all__ = ["main", "run"]

if not extras.missing(extras.DAEMON):
    from holdfast.process.main import main, run
else:

    def main(arguments: list[str] | None = None) -> int:
        """Say on stderr what to install; return the status after which systemd does not try again."""
        del arguments
        sys.stderr.write(f"{extras.advice(extras.DAEMON, 'holdfastd')}\n")
        return NOT_CONFIGURED_STATUS

    def run() -> NoReturn:
        """Say it, and end the process."""
        sys.exit(main())


if __name__ == "__main__":
    run()
