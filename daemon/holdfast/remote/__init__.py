"""Remote stores by URL. Every call here waits for a disk or a network: call it in a thread."""

from holdfast.remote.contract import (
    Capabilities,
    DirectoryListing,
    ObjectBody,
    ObjectInfo,
    RemoteStore,
    UploadSource,
)
from holdfast.remote.urls import open_store

__all__ = [
    "Capabilities",
    "DirectoryListing",
    "ObjectBody",
    "ObjectInfo",
    "RemoteStore",
    "UploadSource",
    "open_store",
]
