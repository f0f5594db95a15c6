"""Translation of obstore's exceptions into ``HoldfastError``.

The code in the store's answer decides first, then obstore's class, then the HTTP status. The class alone does not do:
obstore takes every 404 for a missing object, even if the bucket or the user does not exist, and every 409 for an existing
one.
"""

from __future__ import annotations

import errno
import html
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from obstore import exceptions

from holdfast.errors import (
    AccessDeniedError,
    CredentialsExpiredError,
    HoldfastError,
    NameNotStorableError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteError,
    RemoteRefusedError,
    RemoteUnavailableError,
    RemoteUnsupportedError,
)
from holdfast.remote.failed_requests import failed_request
from holdfast.remote.redaction import masked
from holdfast.system.text import printable

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(?P<code>[^<]+)</Code>|\(code: (?P<of_one_key>\w+)\)")  # the latter of a bulk deletion
_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
_LONGEST_TEXT = 400
_BEYOND_END = re.compile(r"nvalid range|Wanted range starting at")  # the latter where a store answers with nothing
_NOT_FOUND = "404"  # Azure gives a status for each key

_MISSING_OBJECT = {"NoSuchKey", "NoSuchVersion", "BlobNotFound", "PathNotFound"}
_MISSING_BUCKET = {"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"}
_OF_STORE = {  # refused whatever is asked for; any other code may be for one object alone
    "AccountProblem",
    "AllAccessDisabled",
    "AuthorizationHeaderMalformed",
    "AuthorizationQueryParametersError",
    "InvalidBucketName",
    "InvalidSecurity",
    "NoSuchUser",
    "NotSignedUp",
    "PermanentRedirect",
    "RequestTimeTooSkewed",
    "AccountIsDisabled",
    "AuthorizationFailure",
    "InsufficientAccountPermissions",
}
_PASSING = {
    "RequestTimeout",  # S3 says so with 400
    "IncompleteBody",
    "BadDigest",
    "XAmzContentSHA256Mismatch",
    "NoSuchUpload",  # our multipart upload was aborted by somebody: the next try is a new one
    "ConditionalRequestConflict",  # 409 in a race for one name: S3 asks for another try, which then shows the winner
    "OperationAborted",
    "SlowDown",
    "ServiceUnavailable",
    "InternalError",
}
_DENIED = "AccessDenied"
_ARCHIVED = "InvalidObjectState"
_REFUSED_CREDENTIALS = {
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "InvalidToken",
    "AuthenticationFailed",
}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
_EXPIRED_IN_AZURE = re.compile("Signature not valid in the specified time frame|lifetime validation failed")
"""Azure has one code for all refusals of credentials. The first is of a SAS, the second of a token of Entra."""
_NOT_STORABLE = {
    "ExistingObjectIsDirectory": errno.EILSEQ,
    "InvalidBlobName": errno.EINVAL,
    "InvalidObjectName": errno.ENAMETOOLONG,  # Ceph's word for a name of more than 1,024 bytes
    "InvalidResourceName": errno.EINVAL,
    "InvalidURI": errno.EINVAL,
    "InvalidUri": errno.EINVAL,
    "KeyTooLongError": errno.ENAMETOOLONG,
    "ObjectParentIsFile": errno.EILSEQ,
}
_UNSUPPORTED = {"MethodNotAllowed", "MissingContentLength"}
"""The latter is Ceph's word for a copy of a part as obstore sends it: without a header for its length, which is none."""
_PASSING_STATUS = {408, 409, 425, 429}


@contextmanager
def translated(what: str, secrets: Iterable[str] = ()) -> Iterator[None]:
    """Turn obstore's exceptions inside the block into ``HoldfastError``; ``what`` names the request in their messages."""
    try:
        yield
    except (exceptions.BaseError, OSError, ValueError, NotImplementedError) as problem:
        raise _translation(printable(what), problem, secrets) from None
    except BaseException as problem:
        if not is_panic(problem):
            raise  # a panic is object_store's reaction to an answer that it did not expect
        text = f"{printable(what)}: obstore failed: {brief(problem, secrets)}"
        raise RemoteError(text, of_store=False, is_partial=True) from None


def is_panic(problem: BaseException) -> bool:
    """Say whether this is a panic in Rust. It is no ``Exception``, so it would end the daemon."""
    return type(problem).__module__ == "pyo3_runtime"


def brief(problem: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return the message of ``problem`` on one line; of a store's XML only code and message, which have no signatures."""
    told = str(problem)
    text = failed_request(told) or told.split("\n\nDebug source:")[0]
    found = _CODE.search(text)
    if found and found["code"]:
        message = _MESSAGE.search(text)
        text = f"{found['code']}: {html.unescape(message[1])}" if message else found["code"]
    return masked(printable(" ".join(text.split())), secrets)[:_LONGEST_TEXT]


def _translation(what: str, problem: BaseException, secrets: Iterable[str]) -> HoldfastError:
    found = _CODE.search(str(problem))
    text = f"{what}: {brief(problem, secrets)}"
    if found and (known := _by_code(found["code"] or found["of_one_key"], what, text, str(problem))):
        if found["of_one_key"] and isinstance(known, RemoteError):
            known.is_partial = True
        return known
    if isinstance(problem, FileNotFoundError):
        if found is not None and found["of_one_key"] != _NOT_FOUND:  # something else than the object is missing
            return RemoteRefusedError(text)
        return ObjectMissingError(f"{what}: no such object")
    if isinstance(problem, exceptions.AlreadyExistsError):
        return ObjectExistsError(f"{what}: the object exists already")
    if isinstance(problem, exceptions.PreconditionError | exceptions.NotModifiedError):
        return ObjectChangedError(f"{what}: the object is another version by now")
    if isinstance(problem, exceptions.UnauthenticatedError):
        return RemoteRefusedError(f"{what}: the store refuses the credentials: {brief(problem, secrets)}")
    if isinstance(problem, exceptions.PermissionDeniedError):
        return AccessDeniedError(f"{what}: the store refuses: {brief(problem, secrets)}", of_store=False)
    if isinstance(problem, exceptions.InvalidPathError):  # a key found by a listing: ours were checked before
        return RemoteError(f"{text}; nothing beside it can be listed until it is renamed or deleted with another tool")
    return _by_status(what, problem, text)


def _by_code(code: str, what: str, text: str, answer: str) -> HoldfastError | None:
    if code in _MISSING_OBJECT:
        return ObjectMissingError(f"{what}: no such object")
    if code in _MISSING_BUCKET:
        return RemoteRefusedError(f"{what}: the bucket does not exist")
    if code in _OF_STORE:
        return RemoteRefusedError(text)
    if code == _DENIED:
        return AccessDeniedError(text, of_store=False)
    if code == _ARCHIVED:
        return RemoteRefusedError(text, of_store=False)
    if code in _EXPIRED or (code == "AuthenticationFailed" and _EXPIRED_IN_AZURE.search(answer)):
        return CredentialsExpiredError(f"{what}: the store refuses the credentials, which have expired ({code})")
    if code in _REFUSED_CREDENTIALS:
        return RemoteRefusedError(f"{what}: the store refuses the credentials: {text.removeprefix(f'{what}: ')}")
    if code in _PASSING:
        return RemoteUnavailableError(text, of_store=code != "InternalError")  # one object's parts may be what is lost
    if code in _UNSUPPORTED:
        return _unsupported(what, text, of_store=False)
    if code in _NOT_STORABLE:
        return NameNotStorableError(text, _NOT_STORABLE[code])
    if code == "InvalidRange":
        return ObjectChangedError(f"{what}: the object is shorter than it was")
    return None


def answered(what: str, status: int, body: str, secrets: Iterable[str]) -> HoldfastError:
    """Return the error for an answer of S3's, with this HTTP status and body, to a request that obstore has not made."""
    said = brief(RemoteError(body), secrets)
    text = f"{what}: {f'status {status}' if said == body else said}"
    found = _CODE.search(body)
    return (_by_code(found["code"], what, text, body) if found else None) or _refused_or_passing(text, status)


def _by_status(what: str, problem: BaseException, text: str) -> HoldfastError:
    match = _STATUS.search(str(problem))
    status = int(match[1]) if match else 0
    if status == 416 or _BEYOND_END.search(text):
        return ObjectChangedError(f"{what}: the object is shorter than it was")
    if isinstance(problem, ValueError) and "parse path" in text:
        return NameNotStorableError(text, errno.EINVAL)
    if isinstance(problem, NotImplementedError | exceptions.NotSupportedError) or status == 501:
        return _unsupported(what, text, of_store=True)
    if "incorrectly configured region" in text:
        return RemoteRefusedError(text)
    return _refused_or_passing(text, status)


def _unsupported(what: str, text: str, *, of_store: bool) -> HoldfastError:
    return RemoteUnsupportedError(f"{what}: the store can't do this: {text.removeprefix(f'{what}: ')}", of_store=of_store)


def _refused_or_passing(text: str, status: int) -> HoldfastError:
    if 400 <= status < 500 and status not in _PASSING_STATUS:
        return RemoteRefusedError(text, of_store=False)
    return RemoteUnavailableError(text, of_store=status != 500)
