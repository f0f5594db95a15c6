"""Weighted rendezvous hashing: every machine finds the same order of nodes for a number, without asking anybody.

When a node comes or goes, only numbers whose highest score is or was its own change hands. Pure.
"""

from __future__ import annotations

import hashlib
import math

_WORD = 2**64 - 1


def seed_of(*words: str) -> int:
    """Return the seed for these words, as of a query and a node: 64 bits, the same on every machine."""
    text = "\0".join(words).encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def score(seed: int, number: int, weight: float) -> float:
    """Return a positive score for ``number``. Of several seeds, each has the highest as often as its weight says."""
    mixed = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _WORD  # splitmix64 (Steele, Lea, Flood 2014)
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _WORD
    mixed ^= mixed >> 31
    fraction = ((mixed >> 12) + 0.5) / 2**52  # exact, and neither 0 nor 1, whoever chooses the number
    return -weight / math.log(fraction)
