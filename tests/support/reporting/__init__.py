"""The summary at the end of a run of the tests."""
