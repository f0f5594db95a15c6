"""Checks whether a daemon could start with a configuration: before it does, and in ``holdfast doctor``."""
