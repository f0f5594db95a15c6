"""Tests of ``holdfast.fs``, without a mount."""
