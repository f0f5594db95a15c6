"""versitygw, the S3 server of the tests. ``python -m tests.support.stores.versitygw`` makes sure that it is there."""

from __future__ import annotations

from pathlib import Path

from tests.support.tools.go_programs import BuildError, go_program

__all__ = ["BuildError", "versitygw_binary"]
_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


def versitygw_binary() -> Path:
    """Return the path of the program. Raises ``BuildError``."""
    return go_program("versitygw", _MODULE)


if __name__ == "__main__":
    versitygw_binary()
