"""What a running daemon takes of a changed configuration."""

from __future__ import annotations

from pathlib import Path

from holdfast.config import load, reloaded


def test_what_can_be_taken_is_taken_and_the_rest_is_named(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('[cache]\nmax_bytes = 1\n[roles.gone]\nretain_seconds = 1\nbase = "work"\n')
    now = load(file).config
    file.write_text(
        '[cache]\nmax_bytes = 2\n[mount]\nallow_other = false\n[stores.more]\nurl = "file:///more"\n'
        '[roles.worker]\nmax_bytes = 3\nlocal_state = "more"\n'
    )
    wanted = load(file).config
    found = reloaded(now, wanted)
    assert found.taken == ["cache.max_bytes", "roles.gone.retain_seconds", "roles.worker.max_bytes"]
    assert {"mount.allow_other", "stores.more.url", "roles.worker.local_state", "roles.gone.base"} <= set(found.left)
    assert found.config.cache.max_bytes == 2
    assert found.config.role("worker").max_bytes == 3
    assert found.config.role("worker").local_state == now.role("worker").local_state
    assert found.config.mount == now.mount
    assert found.config.stores == now.stores


def test_a_configuration_that_is_as_before_changes_nothing() -> None:
    now = load().config
    assert reloaded(now, load().config) == (now, [], [])
