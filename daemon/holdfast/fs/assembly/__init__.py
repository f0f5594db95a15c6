"""The rooms of the file system, put together: each module here makes the parts of one or two rooms."""
