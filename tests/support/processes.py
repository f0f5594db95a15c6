"""Processes of the tests that must not outlive the tests."""

from __future__ import annotations

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""A command's prefix: the kernel kills it when the thread that has started it ends, however it does."""
