"""What can be configured: one struct for each section of ``holdfast.toml``, with the defaults.

Each key is also the environment variable ``HOLDFAST_SECTION__KEY``. Keys of sizes end in ``_bytes``, of times in
``_seconds``. ``docs/configuration.md`` is written from this file; a test holds the two together.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from holdfast.config.units import ByteSize, FileMode

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
NotEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class Durability(enum.Enum):
    """When a write counts as done (``docs/semantics.md``, "Durability")."""

    LOCAL = "local"
    COMMIT = "commit"
    ASYNC = "async"


class Section(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of all sections: keys nobody knows are an error."""


class MountSection(Section, frozen=True):
    """``[mount]``: where, and for whom."""

    mountpoint: str = ""
    allow_other: bool = True
    passthrough: bool = True


class StoreSection(Section, frozen=True):
    """``[store]``: the directory on the local disk that holds the cache and the working directories."""

    directory: NotEmpty = "/var/lib/holdfast/store"


class ZoneSection(Section, frozen=True):
    """``[checkpoints]`` and ``[blobs]``: a remote store and how its zone behaves."""

    url: NotEmpty
    durability: Durability = Durability.COMMIT
    uid: int = -1
    gid: int = -1
    file_mode: FileMode = FileMode(0o644)
    directory_mode: FileMode = FileMode(0o755)
    options: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)


class NamesSection(Section, frozen=True):
    """``[names]``: which names are of which kind, added to the built-in patterns (``checkpoints.formats``)."""

    temporary: list[str] = msgspec.field(default_factory=list)
    sidecar: list[str] = msgspec.field(default_factory=list)
    write_once: list[str] = msgspec.field(default_factory=list)
    immutable: list[str] = msgspec.field(default_factory=list)
    replaceable: list[str] = msgspec.field(default_factory=list)


class RemoteSection(Section, frozen=True):
    """``[remote]``: how the daemon talks to the stores."""

    retry_deadline_seconds: Positive = 120.0
    request_timeout_seconds: Positive = 60.0
    connect_timeout_seconds: Positive = 5.0
    metadata_ttl_seconds: NotNegative = 1.0
    fallback_ttl_seconds: NotNegative = 30.0
    delete_delay_seconds: NotNegative = 0.2
    parallel_transfers: Count = 16
    single_put_limit_bytes: ByteSize = ByteSize(16 * 2**20)
    read_while_arriving_bytes: ByteSize = ByteSize(32 * 2**20)


class CacheSection(Section, frozen=True):
    """``[cache]``: how much of the disk may be used."""

    max_bytes: ByteSize = ByteSize(0)
    min_free_bytes: ByteSize = ByteSize(2**30)
    low_watermark: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9


class IntegritySection(Section, frozen=True):
    """``[integrity]``: when digests are checked."""

    verify_on_first_open: bool = True
    scrub_bytes_per_second: ByteSize = ByteSize(0)
    quarantine_seconds: NotNegative = 7 * 86400.0


class RoleSection(Section, frozen=True):
    """``[workdirs.roles.ROLE]``: what differs for one role; what is not set is taken from ``[workdirs]``."""

    base: NotEmpty | None = None
    retain_seconds: NotNegative | None = None


class WorkdirsSection(Section, frozen=True):
    """``[workdirs]``: the working directories of processes."""

    base: NotEmpty = "work"
    retain_seconds: NotNegative = 7 * 86400.0
    roles: dict[str, RoleSection] = msgspec.field(default_factory=dict)


class SweepSection(Section, frozen=True):
    """``[sweep]``: what is left alone by sweeps, and whether the daemon sweeps by itself."""

    grace_seconds: NotNegative = 86400.0
    abandoned_seconds: NotNegative = 7 * 86400.0
    min_batches_to_retain: Annotated[int, msgspec.Meta(ge=0)] = 100
    every_seconds: NotNegative = 0.0
    roots: list[str] = msgspec.field(default_factory=list)


class ControlSection(Section, frozen=True):
    """``[control]``: the control socket."""

    socket: NotEmpty = "/run/holdfast/control.sock"
    group: str = "holdfast"


class LogSection(Section, frozen=True):
    """``[log]``: the daemon's log."""

    level: str = "info"
    file: str = ""
    max_bytes: ByteSize = ByteSize(16 * 2**20)


class Config(Section, frozen=True):
    """The whole of ``holdfast.toml``."""

    mount: MountSection = MountSection()
    store: StoreSection = StoreSection()
    checkpoints: ZoneSection = ZoneSection(url="file:///var/lib/holdfast/remote/checkpoints")
    blobs: ZoneSection = ZoneSection(url="file:///var/lib/holdfast/remote/blobs")
    names: NamesSection = NamesSection()
    remote: RemoteSection = RemoteSection()
    cache: CacheSection = CacheSection()
    integrity: IntegritySection = IntegritySection()
    workdirs: WorkdirsSection = WorkdirsSection()
    sweep: SweepSection = SweepSection()
    control: ControlSection = ControlSection()
    log: LogSection = LogSection()
