"""Refusals that pass by themselves, since other credentials come, told from those that do not.

Ceph says of an expired session token that it denies access, as of missing rights. What tells them apart is what else works:
a token that has worked, and with which not even the store can be asked any more, has expired, or lost all its rights. Then
it is tried again until another one comes. A token that can still be used, or that has never worked, is refused for good.

Only the tokens that this process gets from elsewhere (``RenewedKeys``) can expire while they are used: obstore renews those
of roles and identities before. What is asked beside the refused request costs one request in five seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.errors import (
    AccessDeniedError,
    CredentialsExpiredError,
    HoldfastError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote.credentials import RenewedKeys

_VOUCHED_SECONDS = 5.0


class CredentialRefusals:
    """Judges the refusals of one store. Safe to use from several threads."""

    def __init__(self, keys: RenewedKeys | None, works: Callable[[], bool], *, are_renewed: bool) -> None:
        """``works`` asks the store whether it takes the credentials in use for anything; ``are_renewed``: others come."""
        self._keys = keys
        self._works = works
        self._are_renewed = are_renewed
        self._worked = ""
        """The token with which a request has succeeded last."""
        self._vouched = ("", 0.0)
        """The token that was found to work beside a refused request, and until when that counts (monotonic seconds)."""

    @property
    def token(self) -> str:
        """The session token in use; "" if it is not known, or can't be another one."""
        return self._keys.token if self._keys is not None else ""

    def worked(self, token: str) -> None:
        """Note that a request has succeeded that began while ``token`` was in use."""
        self._worked = token or self.token

    def judged(self, problem: RemoteRefusedError, token: str) -> HoldfastError:
        """Return the error for a refused request that began while ``token`` was in use.

        Raises ``RemoteUnavailableError`` if the store does not answer to the question that tells.
        """
        if isinstance(problem, CredentialsExpiredError):
            if self._are_renewed:
                return RemoteUnavailableError(f"{problem}; new ones are waited for")
            return CredentialsExpiredError(f"{problem}; they come from an option or a variable, which nothing renews")
        is_of_request = isinstance(problem, AccessDeniedError) and not problem.is_partial
        if is_of_request and self._keys is not None and self._may_have_expired(self._keys, token):
            return RemoteUnavailableError(f"{problem}; the session token may have expired, and another one is waited for")
        return problem

    def _may_have_expired(self, keys: RenewedKeys, token: str) -> bool:
        if token and keys.token != token:
            return True  # it was renewed since the request began, which may have been sent with the one before
        token = keys.token
        vouched, until = self._vouched
        if not token or (vouched == token and time.monotonic() < until):
            return False
        works = self._works()
        if keys.token != token:
            return True  # as above
        if works:
            self._vouched = (token, time.monotonic() + _VOUCHED_SECONDS)
            return False
        return token == self._worked or _is_outdated(keys, token)


def _is_outdated(keys: RenewedKeys, token: str) -> bool:
    """Say whether obstore will get another token when it asks again."""
    try:
        return bool(keys.newest()["token"] != token)
    except Exception:  # noqa: BLE001 boto3 raises what comes of its sources: there are no keys for now
        return True
