"""Remote stores by URL. Every call here waits for a disk or a network: call it in a thread."""

from holdfast.remote.contract import (
    Capabilities,
    DirectoryInfo,
    DirectoryListing,
    ObjectBody,
    ObjectInfo,
    RemoteStore,
    UploadSource,
)
from holdfast.remote.urls import directory_of, open_store

__all__ = [
    "Capabilities",
    "DirectoryInfo",
    "DirectoryListing",
    "ObjectBody",
    "ObjectInfo",
    "RemoteStore",
    "UploadSource",
    "directory_of",
    "open_store",
]
