"""obstore's exceptions in Holdfast's terms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions

from holdfast.errors import (
    NameNotStorableError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteError,
    RemoteRefusedError,
    RemoteUnavailableError,
)

_STATUS = re.compile(r"status code: (\d{3})")
_SECRETS = re.compile(r"(X-Amz-(?:Signature|Credential|Security-Token)|sig|se|AWSAccessKeyId)=[^&\s]+")
_PASSING_STATUS = {408, 409, 425, 429}


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn obstore's exceptions inside the block into ``RemoteError``; ``what`` names the request in their messages."""
    try:
        yield
    except FileNotFoundError as problem:
        if "NoSuchBucket" in str(problem):
            raise RemoteRefusedError(f"{what}: the bucket does not exist") from None
        raise ObjectMissingError(f"{what}: no such object") from None
    except exceptions.AlreadyExistsError:
        raise ObjectExistsError(f"{what}: the object exists already") from None
    except (exceptions.PreconditionError, exceptions.NotModifiedError):
        raise ObjectChangedError(f"{what}: the object is another version by now") from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as problem:
        raise RemoteRefusedError(f"{what}: the store refuses the credentials: {brief(problem)}") from None
    except exceptions.InvalidPathError as problem:
        raise NameNotStorableError(f"{what}: {brief(problem)}") from None
    except (exceptions.BaseError, OSError, ValueError, NotImplementedError) as problem:
        raise _classified(what, problem) from None


def _classified(what: str, problem: BaseException) -> RemoteError:
    text = brief(problem)
    match = _STATUS.search(str(problem))
    status = int(match[1]) if match else 0
    if status == 416:
        return ObjectChangedError(f"{what}: the object is shorter than it was")
    if 400 <= status < 500 and status not in _PASSING_STATUS:
        return RemoteRefusedError(f"{what}: {text}")
    return RemoteUnavailableError(f"{what}: {text}")


def brief(problem: BaseException) -> str:
    """Return the first lines of an obstore message, on one line, without signatures."""
    text = str(problem).split("\n\nDebug source:")[0]
    return _SECRETS.sub(r"\1=***", " ".join(text.split()))[:400]
