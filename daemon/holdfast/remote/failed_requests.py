"""Says why a request did not get an answer: obstore names the innermost cause only in its debug output.

``error sending request`` may be a name that nobody knows, a closed port, a certificate, or a server that is silent. What is
to be done about each is something else.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_REQUEST = re.compile(r"Error performing (?P<method>[A-Z]+) (?P<url>\S+)(?: in \S+)?(?: - HTTP error: [\w ]+)?")
_DEBUG = "\n\nDebug source:"
_HTTP = "HttpError {"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_OF_TLS = re.compile(
    r"\b(InvalidCertificate|InvalidMessage|AlertReceived|PeerIncompatible|PeerMisbehaved)\(\s*(.*)", re.DOTALL
)
_NO_HTTP = re.compile(r"hyper::Error\(\s*([A-Z]\w+)")
_NAME = re.compile(r"\b[A-Z][A-Za-z]+\b")
_NO_AUTHORITIES = "No CA certificates were loaded"
_SAYS_NOTHING = {"Other", "OtherError"}
_PLAIN = {
    "tcp connect error": "",
    "dns error": "the server's name can't be resolved",
    "unexpected end of file": "the server closed the connection",
    "peer closed connection without sending TLS close_notify": "the server closed the connection",
}
_KNOWN = (
    ("IncompleteMessage", "the server closed the connection before it had answered"),
    ("BadScheme", "the address of the server is not http:// or https://"),
    ("Canceled", "the request was cancelled"),
)


def failed_request(text: str) -> str | None:
    """Return method, server and causes of a request that had no answer or can't be sent; None if ``text`` tells of none.

    ``text`` is the message of an exception of obstore's, with its debug output.
    """
    message, _, debug = text.partition(_DEBUG)
    if _NO_AUTHORITIES in debug:
        return "the system has no certificates of authorities; install ca-certificates, or set SSL_CERT_FILE"
    at = debug.find(_HTTP)
    if at < 0:
        return None
    request = _REQUEST.search(message)
    what = f"{request['method']} {_server(request['url'])}" if request else ""
    return ": ".join(filter(None, [what, *_causes(debug[at:])]))


def _server(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _causes(debug: str) -> list[str]:
    """Return the causes from the outermost to the innermost, each once."""
    if tls := _OF_TLS.search(debug):
        names = [name for name in _NAME.findall(tls[2]) if name not in _SAYS_NOTHING]
        what = "the server's certificate is not accepted" if tls[1] == "InvalidCertificate" else "TLS failed"
        return [f"{what} ({names[0] if names else tls[1]})"]
    quoted = [each for each in _QUOTED.findall(debug) if "://" not in each]
    found = [_PLAIN.get(each, each) for each in dict.fromkeys(quoted)]
    if not any(found):
        found = [words for name, words in _KNOWN if name in debug]
    if "TimedOut" in debug or "kind: Timeout" in debug:
        found.append("no connection within the time allowed" if "Connect," in debug else "no answer within the time allowed")
    if not any(found) and (answer := _NO_HTTP.search(debug)):
        found = [f"the answer is not HTTP ({answer[1]})"]
    return [each for each in found if each] or ["the request could not be sent"]
