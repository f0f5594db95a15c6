"""``./run kernels``: run tests on another kernel, in a guest of user-mode Linux on this machine.

``./run kernels 6.1 tests/mount -k rename`` hands all but its own options to pytest there.
"""

from __future__ import annotations

import argparse
import sys

from tests.support.guests.guest import DISKS, run_in_guest
from tests.support.guests.kernels import RELEASES, NoKernelError

_SECONDS = 6 * 3600.0
_TEST_SECONDS = 3600
"""A test takes ten times as long as on the host, a hundred times on a busy one: the limit in pyproject.toml is too short."""


def main() -> int:
    """Run what is asked for; return its status."""
    parser = argparse.ArgumentParser(prog="./run kernels", description=__doc__)
    parser.add_argument("kernel", choices=RELEASES, help="a kernel, of this version")
    parser.add_argument("--disk", choices=DISKS, default="ext4", help="the file system of the tests' stores (default: ext4)")
    parser.add_argument("--options", default="", help="options of that file system's mount, as in prjquota")
    parser.add_argument("--shell", metavar="COMMAND", help="run a shell command in place of pytest")
    options, words = parser.parse_known_args()
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--timeout={_TEST_SECONDS}", *words]
    command = pytest if options.shell is None else ["sh", "-c", options.shell]
    try:
        done = run_in_guest(options.kernel, command, disk=options.disk, options=options.options, seconds=_SECONDS, echo=True)
    except NoKernelError as problem:
        print(f"kernels: {problem}", file=sys.stderr)
        return 2
    return 3 if done.status is None else done.status


if __name__ == "__main__":
    sys.exit(main())
