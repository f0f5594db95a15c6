"""Remote stores by URL. Every call here blocks on a disk or the network: make it in a thread."""

from holdfast.remote.contract import (
    Capabilities,
    DirectoryInfo,
    DirectoryListing,
    ObjectBody,
    ObjectInfo,
    RemoteStore,
    UploadSource,
)
from holdfast.remote.keys import PRIVATE, NameRules, is_listed_as_it_is, is_private, key_below
from holdfast.remote.life_signs import CallLife
from holdfast.remote.many_deletions import says_nothing_of_others
from holdfast.remote.obstore_store import upload_part_bytes
from holdfast.remote.overlap import Location, location_of
from holdfast.remote.urls import checked_store, directory_of, open_store
