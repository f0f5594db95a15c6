"""Cleanup hooks: plans that are made, stored, shown and carried out.

``stored`` is the format and needs nothing but itself; ``planning`` and ``execution`` ask a store.
"""
