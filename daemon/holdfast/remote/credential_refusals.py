"""Refusals that pass by themselves, since other credentials come, told from those that do not.

Ceph says of an expired session token that it denies access, as of missing rights. What tells them apart is what else works:
a token that has worked, and with which the store can't even be listed any more, although it could before, has expired, or
lost all its rights. Then it is tried again until another one comes. A token that can still be used, or that has never
worked, is refused for good; so is one of a user who may not list, since his refusals tell nothing.

Only the tokens that this process gets from elsewhere (``RenewedKeys``) can expire while they are used: obstore renews those
of roles and identities before. What is asked beside the refused requests costs at most one request a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from holdfast.errors import (
    AccessDeniedError,
    CredentialsExpiredError,
    HoldfastError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote.credentials import RenewedKeys

_ANSWER_SECONDS = 1.0


class _Answer(NamedTuple):
    """An answer of the store: if it takes a token for anything. It counts until then (monotonic seconds)."""

    token: str
    takes: bool
    until: float


class CredentialRefusals:
    """Judges the refusals of one store. Safe to use from several threads."""

    def __init__(self, keys: RenewedKeys | None, works: Callable[[], bool], *, are_renewed: bool) -> None:
        """``works`` asks the store for a listing with the credentials in use; ``are_renewed``: others come."""
        self._keys = keys
        self._works = works
        self._are_renewed = are_renewed
        self._worked = ""
        """The token with which a request has succeeded last."""
        self._may_list = False
        self._asking = threading.Lock()
        self._answer = _Answer("", False, 0.0)

    @property
    def token(self) -> str:
        """The session token in use; "" if it is not known, or can't be another one."""
        return self._keys.token if self._keys is not None else ""

    def worked(self, token: str) -> None:
        """Note that a request has succeeded that began while ``token`` was in use."""
        if not token or token == self.token:  # an older one may belong to a request that took long
            self._worked = self.token

    def listed(self) -> None:
        """Note that the credentials have the right to list: from now on the lack of it tells something."""
        self._may_list = True

    def judged(self, problem: RemoteRefusedError, token: str) -> HoldfastError:
        """Return the error for a refused request that began while ``token`` was in use.

        Raises ``RemoteUnavailableError`` if the store does not answer to the question that tells.
        """
        if isinstance(problem, CredentialsExpiredError):
            if self._are_renewed:
                return RemoteUnavailableError(f"{problem}; new ones are waited for")
            return CredentialsExpiredError(f"{problem}; they come from an option or a variable, which nothing renews")
        if not isinstance(problem, AccessDeniedError) or problem.is_partial or self._keys is None:
            return problem
        if token and self._keys.token != token:
            told = f"{problem}; the session token may have expired: another one has come since the request began"
            return RemoteUnavailableError(told, of_store=False)
        if self._may_have_expired(self._keys):
            return RemoteUnavailableError(f"{problem}; the session token may have expired, and another one is waited for")
        return problem

    def _may_have_expired(self, keys: RenewedKeys) -> bool:
        token = keys.token
        if not token:
            return False
        takes = self._takes_token_of(keys)
        if keys.token != token:
            return True  # it was renewed for that question
        return not takes and ((self._may_list and token == self._worked) or _is_outdated(keys, token))

    def _takes_token_of(self, keys: RenewedKeys) -> bool:
        """Say whether the store takes the token for anything. Those who ask at the same time get one answer."""
        with self._asking:
            if self._answer.token != keys.token or time.monotonic() >= self._answer.until:
                takes = self._works()
                self._answer = _Answer(keys.token, takes, time.monotonic() + _ANSWER_SECONDS)
            return self._answer.takes


def _is_outdated(keys: RenewedKeys, token: str) -> bool:
    """Say whether obstore will get another token when it asks again."""
    try:
        return bool(keys.newest()["token"] != token)
    except Exception:  # noqa: BLE001 boto3 raises what comes of its sources: there are no keys for now
        return True
