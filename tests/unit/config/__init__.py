"""Tests of ``holdfast.config``, without a mount."""
