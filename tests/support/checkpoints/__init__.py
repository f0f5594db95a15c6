"""Checkpoints of any engine: roots in memory and on disk, samples of real ones, garbage, sweeps."""
