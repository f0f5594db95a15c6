"""Tests of ``holdfast.preflight``, without a mount."""
