"""Power cuts at random moments under load: nothing acknowledged is lost, and no byte is served that nobody has written."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import pytest

from holdfast.kernel.probe import kernel_version
from tests.support.disks.power_cuts import PowerCuts
from tests.support.stores.s3 import Versitygw

CUTS = int(os.environ.get("HOLDFAST_TEST_CUTS", "6"))
SEED = int(os.environ.get("HOLDFAST_TEST_SEED", "1"))


@pytest.mark.promise("power-cut")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_power_cut_loses_nothing_acknowledged_and_spoils_nothing(kind: str, workspace: Path) -> None:
    _cut_and_check(PowerCuts(kind, workspace, SEED))


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_power_cut_loses_nothing_that_an_s3_server_was_to_have(
    kind: str, workspace: Path, s3_versitygw: Versitygw
) -> None:
    _cut_and_check(PowerCuts(kind, workspace, SEED, server=s3_versitygw.below(uuid.uuid4().hex)))


def _cut_and_check(test: PowerCuts) -> None:
    if shutil.which(f"mkfs.{test.kind}") is None:
        pytest.skip(f"needs mkfs.{test.kind}")
    if test.kind == "btrfs" and kernel_version(os.uname().release) < (6, 7):
        pytest.skip("needs Linux 6.7 to mount a copy of a btrfs beside it")
    problems = []
    for cut in test.collect(CUTS):
        problems += (test.check_after_another if cut.number % 3 == 2 else test.check)(cut)
    assert not problems, "\n".join(problems)


@pytest.mark.promise("power-cut")
@pytest.mark.parametrize("verifies", [True, False])
def test_what_an_orderly_stop_had_not_written_out_is_not_served_either(workspace: Path, *, verifies: bool) -> None:
    test = PowerCuts("ext4", workspace, SEED, integrity__verify_on_first_open=verifies)
    assert not test.check(test.cut_after_an_orderly_stop())
