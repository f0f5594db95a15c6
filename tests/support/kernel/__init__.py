"""The smallest file system that uses what ``holdfast.kernel`` adds."""
