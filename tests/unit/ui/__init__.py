"""Tests of ``holdfast.ui``, without a mount."""
