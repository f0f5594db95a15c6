"""Between this node and the stores: asking, fetching, sending, deleting."""

from holdfast.transfer.access import RemoteAccess
from holdfast.transfer.arrival import Arrival
from holdfast.transfer.deletions import Deletions
from holdfast.transfer.directories import KnownObject, RemoteDirectories, RemoteDirectory
from holdfast.transfer.fetch import Fetcher
from holdfast.transfer.remotes import ObjectPath, Ownership, Remote
from holdfast.transfer.residence import Residence, ResidenceListener
from holdfast.transfer.upload import Uploader

__all__ = [
    "Arrival",
    "Deletions",
    "Fetcher",
    "KnownObject",
    "ObjectPath",
    "Ownership",
    "Remote",
    "RemoteAccess",
    "RemoteDirectories",
    "RemoteDirectory",
    "Residence",
    "ResidenceListener",
    "Uploader",
]
