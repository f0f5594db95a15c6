"""The ``holdfast`` command. It knows the control client and the configuration, and nothing of the daemon's inside."""

from holdfast.cli.app import main

__all__ = ["main"]
