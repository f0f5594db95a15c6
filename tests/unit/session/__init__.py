"""Tests of ``holdfast.session``, without a mount."""
