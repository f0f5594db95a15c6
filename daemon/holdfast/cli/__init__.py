"""The ``holdfast`` command. It uses the control client and the configuration, and nothing of the daemon's internals."""

from holdfast.cli.app import main

__all__ = ["main"]
