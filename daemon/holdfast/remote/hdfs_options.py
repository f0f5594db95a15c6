"""The addresses of an HDFS, and the user who asks.

They come from the options of the store, Hadoop's own files and environment variables.

``hdfs://`` has the URL that Spark and Hadoop use, with the port for Hadoop's own protocol or with the name of several
namenodes (HA). The addresses for HTTP are in ``hdfs-site.xml``, or in the option ``namenodes``; without both, the namenode's
port is Hadoop's default. ``webhdfs://`` and ``swebhdfs://`` have the port for HTTP or HTTPS in the URL.
"""

from __future__ import annotations

import getpass
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigurationError, StoreOptionError
from holdfast.remote.redaction import public_url

HDFS_SCHEMES = frozenset({"hdfs", "webhdfs", "swebhdfs"})
_TEXTS = ("user", "token", "token_file", "namenodes", "config_dir", "ca_file")
_OPTIONS = (*_TEXTS, "kerberos")
_TRUTHS: Mapping[Any, bool] = {True: True, "true": True, False: False, "false": False}
"""The values of ``kerberos``. The environment and ``--set`` have texts alone."""
_PORTS = {"http": 9870, "https": 9871}
_FILES = ("core-site.xml", "hdfs-site.xml")


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
    is_safe = scheme == "swebhdfs" or (scheme == "hdfs" and site.get("dfs.http.policy") == "HTTPS_ONLY")
    transport = "https" if is_safe else "http"
    addresses = given.replace(",", " ").split() or _addresses(scheme, authority, transport, site)
    return tuple(
        f"{transport}://{address}" if ":" in address else f"{transport}://{address}:{_PORTS[transport]}"
        for address in addresses
    )


def _addresses(scheme: str, authority: str, transport: str, site: Mapping[str, str]) -> list[str]:
    """Return the addresses for HTTP: of all namenodes with the common name ``authority``, or of the one that it names."""
    key = f"dfs.namenode.{transport}-address"
    names = site.get(f"dfs.ha.namenodes.{authority}", "").replace(",", " ").split()
    if names:
        return [site[each] for name in names if (each := f"{key}.{authority}.{name}") in site]
    if scheme != "hdfs":
        return [authority]
    host = authority.partition(":")[0]
    there = site.get(key, "")
    return [there if there and there.partition(":")[0] in (host, "0.0.0.0") and not there.startswith("0.0.0.0") else host]


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
    return settings
