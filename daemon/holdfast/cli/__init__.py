"""The ``holdfast`` command. It uses only the control client and the configuration, no internals of the daemon."""

import os

__all__ = ["main"]
_INTERRUPTED = 130


def main() -> None:
    """Run the command. Ctrl-C ends it from its first moment on, also while its parts are loaded."""
    try:
        from holdfast.cli import app

        app.main()
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
