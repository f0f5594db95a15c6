"""What is done to go on from a checkpoint: verify that it can be restored.

``verifying`` asks the formats what a restart reads and compares that with the store; ``object_checks`` reads an object and
compares it with its digest.
"""
