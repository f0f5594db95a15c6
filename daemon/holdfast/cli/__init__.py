"""The ``holdfast`` command. It uses only the control client and the configuration, no internals of the daemon."""

from holdfast.cli.app import main

__all__ = ["main"]
