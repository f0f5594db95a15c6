"""Tests of ``holdfast.digest``, without a mount."""
