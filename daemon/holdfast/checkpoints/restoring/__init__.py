"""Restoring from a checkpoint: verifying it, copying it, taking a query back to it, and undoing that.

``verifying`` asks the formats what a restart reads and compares that with the store; ``object_checks`` reads an object and
compares it with its digest.
"""
