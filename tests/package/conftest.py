"""The package, built once for each release that it is tested on."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.support.debian.bare_debian import need_bare_debian, releases
from tests.support.debian.package_builds import build


@pytest.fixture(scope="session", params=releases())
def release(request: pytest.FixtureRequest) -> str:
    """The code name of a release of Debian that there can be a bare system of."""
    release = cast(str, request.param)
    need_bare_debian(release)
    return release


@pytest.fixture(scope="session")
def package(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package for that release, as version 1."""
    return build(release, tmp_path_factory.mktemp(f"package-{release}"), "1")
