"""A slice of the tests on the kernels of Debian 12 and 13. ``./run kernels`` runs any other tests there."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import pytest

from tests.support.guests.guest import run_in_guest
from tests.support.guests.kernels import NoKernelError
from tests.support.users.privileges import needs_root

pytestmark = needs_root

_SECONDS = 540.0

BEFORE_TAKEOVER = [
    "tests/crash/test_dead_mounts.py::test_what_is_open_stays_dead_and_what_was_closed_is_whole",
    "tests/mount/test_local_files.py::test_shared_and_private_mappings",
    "tests/mount/test_project_quotas.py::test_a_directory_takes_no_more_than_its_project_may",
]
WITH_TAKEOVER = [
    "tests/crash/test_takeover.py::test_names_and_open_files_go_on_after_a_kill",
    "tests/mount/test_kernel_module.py::test_data_moves_without_a_request",
    "tests/mount/test_hard_links.py::test_what_a_new_process_empties_keeps_its_names_elsewhere",
]


def outcomes_in_guest(version: str, tests: Sequence[str], disk: str, options: str = "") -> dict[str, int]:
    """Run tests on the kernel ``version``; return how many passed, were skipped, failed."""
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", *tests]
    try:
        done = run_in_guest(version, command, disk=disk, options=options, seconds=_SECONDS)
    except NoKernelError as problem:
        pytest.skip(str(problem))
    assert done.status == 0, done.output
    last = re.findall(r"^(?:\d+ \w+,? ?)+ in .*$", done.output, re.MULTILINE)[-1]
    return {word: int(count) for count, word in re.findall(r"(\d+) (passed|skipped|failed|errors?)", last)}


def test_before_takeover_a_crash_is_what_the_documentation_says() -> None:
    tests = [*BEFORE_TAKEOVER, WITH_TAKEOVER[0]]
    assert outcomes_in_guest("6.1", tests, "xfs", "prjquota") == {"passed": len(BEFORE_TAKEOVER), "skipped": 1}


def test_with_takeover_open_files_go_on() -> None:
    assert outcomes_in_guest("6.12", WITH_TAKEOVER, "btrfs") == {"passed": len(WITH_TAKEOVER)}
