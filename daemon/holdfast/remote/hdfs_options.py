"""The addresses of an HDFS, and the user who asks.

They come from the options of the store, Hadoop's own files and environment variables.

``hdfs://`` has the URL that Spark and Hadoop use, with the port for Hadoop's own protocol or with the name of several
namenodes (HA). The addresses for HTTP are in ``hdfs-site.xml``, or in the option ``namenodes``; without both, the namenode's
port is Hadoop's default. ``webhdfs://`` and ``swebhdfs://`` have the port for HTTP or HTTPS in the URL.
"""

from __future__ import annotations

import getpass
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigurationError, StoreOptionError
from holdfast.remote.redaction import public_url
from holdfast.system.text import printable

HDFS_SCHEMES = frozenset({"hdfs", "webhdfs", "swebhdfs"})
_TEXTS = ("user", "token", "token_file", "namenodes", "config_dir", "ca_file")
_OPTIONS = (*_TEXTS, "kerberos")
_TRUTHS: Mapping[Any, bool] = {True: True, "true": True, False: False, "false": False}
"""The values of ``kerberos``. The environment and ``--set`` have texts alone."""
_PORTS = {"http": 9870, "https": 9871}
_FILES = ("core-site.xml", "hdfs-site.xml")
_ANY_ADDRESS = "0.0.0.0"
_ADDRESS = re.compile(r"(?:[\w.-]+|\[[\da-f:.]+\])(?::(\d+))?", re.ASCII | re.IGNORECASE)
_LAST_PORT = 2**16 - 1
_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")
_EXPANSIONS = 20
"""The limit of settings that refer to each other in a row: ``MAX_SUBST`` of Hadoop's ``Configuration``."""


@dataclass(frozen=True, slots=True)
class HdfsAccess:
    """The ``origins`` (scheme, host and port) of the namenodes, the store's directory there, and the credentials."""

    origins: tuple[str, ...]
    directory: str
    user: str
    token: str
    """A delegation token, in the text form of Hadoop's ``encodeToUrlString``."""
    token_file: str
    """A file with such a token in place of ``token``, which somebody renews."""
    kerberos: bool
    ca_file: str


def hdfs_access(url: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> HdfsAccess:
    """Return what ``url`` and ``options`` say, and Hadoop's files where they do not. Raises ``ConfigurationError``."""
    for name, value in options.items():
        if name not in _OPTIONS:
            raise StoreOptionError(name, f"HDFS stores have no option {name!r}; there are {', '.join(_OPTIONS)}")
        if not (isinstance(value, bool | str) and value in _TRUTHS if name == "kerberos" else isinstance(value, str)):
            raise StoreOptionError(name, f"{name}: {'true or false' if name == 'kerberos' else 'a text'} is needed")
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    if "@" in authority or "?" in path or "#" in path:
        raise ConfigurationError(f"{public_url(url)}: write {scheme}://host:port/directory; all else is an option")
    if options.get("token") and options.get("token_file"):
        raise StoreOptionError("token_file", "token_file: there is a token already; take one of the two out")
    site = _site(options.get("config_dir") or environment.get("HADOOP_CONF_DIR") or "")
    if not authority:
        authority = site.get("fs.defaultFS", "").partition("://")[2].partition("/")[0]
    if not authority:
        raise ConfigurationError(f"{public_url(url)}: the namenode is missing, as in hdfs://host:8020/directory")
    user = options.get("user") or environment.get("HADOOP_USER_NAME") or getpass.getuser()
    return HdfsAccess(
        _origins(scheme, authority, options.get("namenodes", ""), site),
        "/" + path.strip("/"),
        user,
        options.get("token", ""),
        options.get("token_file", ""),
        _TRUTHS[options.get("kerberos", site.get("hadoop.security.authentication") == "kerberos")],
        options.get("ca_file", ""),
    )


def _origins(scheme: str, authority: str, given: str, site: Mapping[str, str]) -> tuple[str, ...]:
    """Return scheme, host and port of each namenode. Raises ``ConfigurationError``."""
    is_safe = scheme == "swebhdfs" or (scheme == "hdfs" and site.get("dfs.http.policy") == "HTTPS_ONLY")
    transport = "https" if is_safe else "http"
    addresses = given.replace(",", " ").split() or _addresses(scheme, authority, transport, site)
    return tuple(f"{transport}://{_with_port(address, _PORTS[transport])}" for address in addresses)


def _with_port(address: str, default: int) -> str:
    """Return ``address`` with a port. Raises ``ConfigurationError`` for what is no host, or host and port."""
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found[1] or default) > _LAST_PORT:
        raise ConfigurationError(f"{printable(address)} is no address of a namenode, as in host:{default}")
    return address if found[1] else f"{address}:{default}"


def _addresses(scheme: str, authority: str, transport: str, site: Mapping[str, str]) -> list[str]:
    """Return the addresses for HTTP: of all namenodes with the common name ``authority``, or of the one that it names.

    Raises ``ConfigurationError`` if one has none.
    """
    key = f"dfs.namenode.{transport}-address"
    names = site.get(f"dfs.ha.namenodes.{authority}", "").replace(",", " ").split()
    if names:
        return [_address_of(f"{authority}.{name}", key, site) for name in names]
    if scheme != "hdfs":
        return [authority]
    host = authority.partition(":")[0]
    there = _reachable(site.get(key, ""), host)
    return [there if there.partition(":")[0] == host else host]


def _address_of(name: str, key: str, site: Mapping[str, str]) -> str:
    """Return the address for HTTP of one of several namenodes. By default it is at Hadoop's port of the host for RPC."""
    host = site.get(f"dfs.namenode.rpc-address.{name}", "").partition(":")[0]
    there = _reachable(site.get(f"{key}.{name}", ""), host) or host
    if not there:
        raise ConfigurationError(f"hdfs-site.xml has no address of the namenode {name}: {key}.{name} is missing")
    return there


def _reachable(address: str, host: str) -> str:
    """Return ``address`` with ``host`` in place of the address by which a server listens on all of its own."""
    listening, _, port = address.partition(":")
    return address if listening != _ANY_ADDRESS else f"{host}:{port}" if host and port else host


def _site(directory: str) -> dict[str, str]:
    """Return the settings in Hadoop's files in ``directory``. Raises ``ConfigurationError`` for one that can't be read."""
    settings: dict[str, str] = {}
    for path in (Path(directory, name) for name in _FILES if directory):
        try:
            found = ET.fromstring(path.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ET.ParseError) as problem:
            raise ConfigurationError(f"{path}: {problem}") from None
        for each in found.iter("property"):
            settings[(each.findtext("name") or "").strip()] = (each.findtext("value") or "").strip()
    return {name: _expanded(value, settings) for name, value in settings.items()}


def _expanded(value: str, settings: Mapping[str, str]) -> str:
    """Return ``value`` with ``${NAME}`` replaced by that setting, as Hadoop does; one that is not there stays."""
    for _ in range(_EXPANSIONS):
        value = _VARIABLE.sub(lambda found: settings.get(found[1], found[0]), value)
    return value
