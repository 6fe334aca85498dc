"""Where an engine is: the URL it is asked at, and the name that is shown instead.

One rule for settings, files, routers and arguments. It needs no HTTP client: a sidecar without the probe's extra reads
its settings too.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

from satwatch.errors import ConfigError, required
from satwatch.types.engine import MAX_ENGINE_NAME

URL: Final = "an http or https URL or HOST:PORT, without credentials"
_TOO_LONG: Final = f"at most {MAX_ENGINE_NAME} characters without the scheme"
_PORTS: Final = {"http": 80, "https": 443}
_SHOWN: Final = 80
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
# What stands in a path as it is; the rest is escaped, and what is escaped stays so.
SAFE_IN_PATH: Final = "/%:@!$&'()*+,;=~"


def read_url(text: str) -> str:
    """Return the URL that a text stands for, as it is asked at: lower case, with its port, no slash at the end.

    Without a scheme it is http, and has to name its port: a word alone is a slip, and no engine.

    Raises:
        ValueError: what is required of it; never what came, which may hold a password.

    >>> read_url("http://Rollout-3:30000/"), read_url("127.0.0.1:30000"), read_url("https://gateway/engines/7")
    ('http://rollout-3:30000', 'http://127.0.0.1:30000', 'https://gateway:443/engines/7')
    """
    # In the text itself: what is no URL may hold a password too. And urlsplit would strip what is not printable.
    if any(mark in text for mark in "@?# \\") or not text.isprintable():
        raise ValueError(URL)
    has_scheme = "://" in text
    try:
        parts = urlsplit(text if has_scheme else f"http://{text}")
        name = _name(parts, needs_port=not has_scheme)
    except ValueError:
        raise ValueError(URL) from None
    if len(name) > MAX_ENGINE_NAME:
        raise ValueError(_TOO_LONG)
    return f"{parts.scheme}://{name}"


def engine_url(url: str, field: str = "engine") -> str:
    """Return an engine's URL as :func:`read_url` does.

    Args:
        url: as given.
        field: what messages call it.

    Raises:
        ConfigError: no URL, another scheme, a user or a password in it, or a query. The message repeats neither.
    """
    try:
        return read_url(url)
    except ValueError as refused:
        raise ConfigError(required(field, _came(url), str(refused))) from None


def engine_name(url: str) -> str:
    """Return an engine's name, the value of the label ``engine``: host and port, and the path behind them if any.

    Raises:
        ConfigError: as :func:`engine_url`.

    >>> engine_name("http://[::1]:30000"), engine_name("https://gateway/engines/7/")
    ('[::1]:30000', 'gateway:443/engines/7')
    """
    return engine_url(url).partition("://")[2]


def _came(url: str) -> str:
    """Return what may be shown of a URL that is refused."""
    if "@" in url:
        return "a URL with a user or a password"
    return "a URL with a query" if "?" in url or "#" in url else repr(url)[:_SHOWN]


def _name(parts: SplitResult, *, needs_port: bool) -> str:
    """Return host, port and path.

    Raises:
        ValueError: another scheme, or no host, or a port that no socket has.
    """
    place = _HOST.fullmatch(parts.netloc)
    if place is None or parts.scheme not in _PORTS or (needs_port and not place["port"]):
        raise ValueError(URL)
    port = int(place["port"] or _PORTS[parts.scheme])
    if port not in range(1, 65536):
        raise ValueError(URL)
    host = place["host"].lower()
    host = f"[{IPv6Address(host[1:-1])}]" if host.startswith("[") else host.encode("idna").decode("ascii")
    return f"{host}:{port}{quote(parts.path, safe=SAFE_IN_PATH).rstrip('/')}"
