"""Tests on the kernels that people have: each boots a guest, and runs other tests there."""
