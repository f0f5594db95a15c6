"""What an old kernel lacks is told by doctor and by mount --supervise."""

from __future__ import annotations

import platform

import msgspec
import pytest

from holdfast.cli import doctor, kernel_advice
from holdfast.cli.finding import Finding
from tests.unit.cli.test_activity import STATUS


@pytest.mark.parametrize("release", ["6.9", "6.9.0-rc1", "6.18.44", "7.0.1-cloud-amd64"])
def test_a_kernel_that_has_all_lacks_nothing(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    assert list(doctor._kernel()) == [Finding("kernel", "ok", release)]


@pytest.mark.parametrize("release", ["5.4.0-150-generic", "6.1.0-13-amd64", "6.8.12"])
def test_doctor_tells_what_a_kernel_before_6_9_lacks(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    (finding,) = doctor._kernel()
    assert finding.level == "warn"
    for words in (release, "no mount outlives its daemon", "ENOTCONN", "SIGBUS", "no passthrough"):
        assert words in finding.found


def test_a_kernel_that_is_too_old_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: "4.19.0-27-amd64")
    (finding,) = doctor._kernel()
    assert finding.level == "fail"


def test_a_supervised_mount_that_ends_with_its_daemon_is_told() -> None:
    assert kernel_advice.supervised_in_vain(STATUS) == ""
    old = msgspec.structs.replace(STATUS, takeover="no takeover: kernel 6.1 < 6.9")
    told = kernel_advice.supervised_in_vain(old)
    assert told.startswith("no takeover: kernel 6.1 < 6.9: ")
    assert "ENOTCONN" in told
    assert "SIGBUS" in told


def test_the_end_of_a_mount_is_told_with_its_reason_and_what_it_means() -> None:
    assert kernel_advice.end_of("takeover") == "the mount outlives the daemon"
    told = kernel_advice.end_of("no takeover: kernel 6.1 < 6.9")
    assert (
        told == "the mount ends with the daemon, and what is open in it fails from then on (no takeover: kernel 6.1 < 6.9)"
    )


@pytest.mark.parametrize(("count", "words"), [(1, "by 0 (java): "), (10, ", 9 (java): "), (12, ", 9 (java) and 2 more: ")])
def test_who_uses_a_dead_mount_is_named_up_to_ten(count: int, words: str) -> None:
    assert words in kernel_advice.left_behind([f"{pid} (java)" for pid in range(count)])
