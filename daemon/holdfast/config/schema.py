"""The configuration's schema: one struct for each section of ``holdfast.toml``, with the defaults.

Each key is also the environment variable ``HOLDFAST_SECTION__KEY``. Keys of sizes end in ``_bytes``, of times in
``_seconds``. There may be any number of tables ``[stores.NAME]`` and ``[roles.NAME]``; the names of the two default stores
appear here and nowhere else. ``docs/configuration.md`` is written from this file; a test compares the two.
"""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar

import msgspec

from holdfast.config.units import ByteSize, FileMode, TcpAddress

_MOST = 1e9  # seconds: 31 years, which are a number of 64 bits also as nanoseconds
Positive = Annotated[float, msgspec.Meta(gt=0, le=_MOST)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=_MOST)]
Count = Annotated[int, msgspec.Meta(ge=1)]
NotEmpty = Annotated[str, msgspec.Meta(min_length=1)]

NODE_NAME = r"^([A-Za-z0-9]([A-Za-z0-9_-]|[.](?![.])){0,126})?\Z"
"""A node's name, which becomes a part of a key; it may be empty."""
HOST_NAME = r"^[A-Za-z0-9]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?\Z"
"""A host's name, or an address."""
MOST_STANDBYS = 4
"""The limit of standby copies of a partition."""


class Durability(enum.Enum):
    """The point at which a write counts as done (``docs/semantics.md``, "Durability")."""

    LOCAL = "local"
    COMMIT = "commit"
    ASYNC = "async"


class Section(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of all sections: unknown keys are an error."""

    RELOADABLE: ClassVar[tuple[str, ...]] = ()
    """The keys that a running daemon takes when it reads its configuration again."""


class OnStop(enum.Enum):
    """The end of the mount, or its stay, when the daemon is told to stop while a keeper holds it."""

    LEAVE = "leave"
    UNMOUNT = "unmount"


class MountSection(Section, frozen=True):
    """``[mount]``: the mountpoint, who may use it, and who holds it while there is no daemon."""

    RELOADABLE = ("on_stop",)

    mountpoint: str = ""
    allow_other: bool = True
    passthrough: bool = True
    keeper: str = ""
    on_stop: OnStop = OnStop.LEAVE


class StoreSection(Section, frozen=True):
    """``[store]``: the directory on the local disk that holds the cache and the working directories, and other disks."""

    directory: NotEmpty = "/var/lib/holdfast/store"
    other_disks: list[NotEmpty] = msgspec.field(default_factory=list)
    spread_cache: bool = False


class ZoneSection(Section, frozen=True):
    """``[stores.NAME]``: a remote store and the policy of its zone ``/NAME``. Without a URL it is left out of the mount."""

    RELOADABLE = (
        "upload_bytes_per_second",
        "download_bytes_per_second",
        "requests_per_second",
        "standbys",
        "standby_seconds",
        "standby_bytes_per_second",
        "standby_requests_per_second",
    )

    url: str
    durability: Durability = Durability.COMMIT
    uid: int = -1
    gid: int = -1
    file_mode: FileMode = FileMode(0o644)
    directory_mode: FileMode = FileMode(0o755)
    upload_bytes_per_second: ByteSize = ByteSize(0)
    download_bytes_per_second: ByteSize = ByteSize(0)
    requests_per_second: NotNegative = 0.0
    standbys: Annotated[int, msgspec.Meta(ge=0, le=MOST_STANDBYS)] = 0
    standby_seconds: Positive = 15.0
    standby_bytes_per_second: ByteSize = ByteSize(0)
    standby_requests_per_second: NotNegative = 10.0
    options: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)


class NamesSection(Section, frozen=True):
    """``[names]``: patterns for kinds of names, in addition to the built-in ones (``checkpoints.formats``)."""

    temporary: list[str] = msgspec.field(default_factory=list)
    sidecar: list[str] = msgspec.field(default_factory=list)
    write_once: list[str] = msgspec.field(default_factory=list)
    immutable: list[str] = msgspec.field(default_factory=list)
    replaceable: list[str] = msgspec.field(default_factory=list)


class RemoteSection(Section, frozen=True):
    """``[remote]``: the requests of the daemon to the stores."""

    RELOADABLE = ("metadata_ttl_seconds", "fallback_ttl_seconds")

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
    """``[cache]``: limits on the part of the disk that the cache may use."""

    RELOADABLE = ("max_bytes", "min_free_share", "min_free_bytes", "low_watermark")

    max_bytes: ByteSize = ByteSize(0)
    min_free_share: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.05
    min_free_bytes: ByteSize = ByteSize(0)
    low_watermark: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9


class LimitsSection(Section, frozen=True):
    """``[limits]``: limits on the use of the daemon by one user (root has none), and by all of them together."""

    RELOADABLE = ("open_files_per_user",)

    cached_names: Count = 100_000
    open_files_per_user: Annotated[int, msgspec.Meta(ge=0)] = 0
    requests_per_user: Count = 64


class IntegritySection(Section, frozen=True):
    """``[integrity]``: the checks of digests."""

    RELOADABLE = ("scrub_bytes_per_second", "quarantine_seconds")

    verify_on_first_open: bool = True
    scrub_bytes_per_second: ByteSize = ByteSize(0)
    quarantine_seconds: NotNegative = 7 * 86400.0


class WorkdirsSection(Section, frozen=True):
    """``[workdirs]``: the working directories of processes, and the stores that they fall back to (empty: to none)."""

    RELOADABLE = ("retain_seconds", "max_bytes", "max_files")

    base: NotEmpty = "work"
    retain_seconds: NotNegative = 7 * 86400.0
    max_bytes: ByteSize = ByteSize(0)
    max_files: Annotated[int, msgspec.Meta(ge=0)] = 0
    local_state: str = "checkpoints"
    blob_storage: str = "blobs"


class RoleSection(Section, frozen=True):
    """``[roles.NAME]``: settings of one role; keys that are not set are taken from ``[workdirs]``."""

    RELOADABLE = ("retain_seconds", "max_bytes", "max_files")

    base: NotEmpty | None = None
    retain_seconds: NotNegative | None = None
    max_bytes: ByteSize | None = None
    max_files: Annotated[int, msgspec.Meta(ge=0)] | None = None
    local_state: str | None = None
    blob_storage: str | None = None


class MetricsSection(Section, frozen=True):
    """``[metrics]``: the address of the metrics, which the sockets have too."""

    listen: TcpAddress = TcpAddress()


class UiSection(Section, frozen=True):
    """``[ui]``: the page for browsers, on TCP."""

    listen: TcpAddress = TcpAddress()
    token: str = ""


class SweepSection(Section, frozen=True):
    """``[sweep]``: the ages that sweeps respect, and whether the daemon sweeps periodically."""

    grace_seconds: NotNegative = 86400.0
    abandoned_seconds: NotNegative = 7 * 86400.0
    min_batches_to_retain: Annotated[int, msgspec.Meta(ge=0)] = 100
    every_seconds: NotNegative = 0.0
    roots: list[str] = msgspec.field(default_factory=list)


class HoldingsSection(Section, frozen=True):
    """``[holdings]``: reports to the other nodes of the state that this node holds, and its names in them."""

    enabled: bool = True
    interval_seconds: Positive = 5.0
    refresh_seconds: Positive = 60.0
    node: Annotated[str, msgspec.Meta(pattern=NODE_NAME)] = ""
    hosts: list[Annotated[str, msgspec.Meta(pattern=HOST_NAME)]] = msgspec.field(default_factory=list)
    rack: Annotated[str, msgspec.Meta(pattern=NODE_NAME)] = ""


class ControlSection(Section, frozen=True):
    """``[control]``: the control socket."""

    socket: NotEmpty = "/run/holdfast/control.sock"
    group: str = "holdfast"
    pods_socket: str = ""


class LogSection(Section, frozen=True):
    """``[log]``: the daemon's log."""

    RELOADABLE = ("level",)

    level: str = "info"
    file: str = ""
    max_bytes: ByteSize = ByteSize(16 * 2**20)


def _default_stores() -> dict[str, ZoneSection]:
    names = ("checkpoints", "blobs")
    return {name: ZoneSection(url=f"file:///var/lib/holdfast/remote/{name}") for name in names}


class Config(Section, frozen=True):
    """The whole of ``holdfast.toml``."""

    mount: MountSection = MountSection()
    store: StoreSection = StoreSection()
    stores: dict[str, ZoneSection] = msgspec.field(default_factory=_default_stores)
    names: NamesSection = NamesSection()
    remote: RemoteSection = RemoteSection()
    cache: CacheSection = CacheSection()
    limits: LimitsSection = LimitsSection()
    integrity: IntegritySection = IntegritySection()
    workdirs: WorkdirsSection = WorkdirsSection()
    roles: dict[str, RoleSection] = msgspec.field(default_factory=dict)
    sweep: SweepSection = SweepSection()
    holdings: HoldingsSection = HoldingsSection()
    control: ControlSection = ControlSection()
    metrics: MetricsSection = MetricsSection()
    ui: UiSection = UiSection()
    log: LogSection = LogSection()

    @property
    def mounted_stores(self) -> dict[str, ZoneSection]:
        """The stores in the mount, by name: those that have a URL."""
        return {name: section for name, section in self.stores.items() if section.url}

    def role(self, name: str) -> WorkdirsSection:
        """Return the settings of a role's working directories, whether the role has a table or not."""
        special = msgspec.structs.asdict(self.roles.get(name, RoleSection()))
        return msgspec.structs.replace(self.workdirs, **{key: value for key, value in special.items() if value is not None})

    def every_role(self) -> list[WorkdirsSection]:
        """Return the settings of every role: first those without a table, then one each."""
        return [self.workdirs, *(self.role(name) for name in self.roles)]
