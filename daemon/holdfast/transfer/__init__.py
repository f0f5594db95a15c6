"""The traffic between this node and the stores: requests, fetches, uploads, deletions."""

from holdfast.transfer.cached_copies import CachedCopies, CopyListener
from holdfast.transfer.cached_listing import CachedListing, KnownObject
from holdfast.transfer.deletions import Deletions
from holdfast.transfer.fetch import Fetcher
from holdfast.transfer.library_calls import ASKING_USER, BEHIND_ALL, IN_BACKGROUND
from holdfast.transfer.listing_cache import ListingCache
from holdfast.transfer.partial_fetch import PartialFetch
from holdfast.transfer.remotes import ObjectPath, Ownership, Remote
from holdfast.transfer.stale_notes import is_stale
from holdfast.transfer.store_requests import RemoteAccess
from holdfast.transfer.upload import HashingThreads, Uploader, check_can_be_sent
