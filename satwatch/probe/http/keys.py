"""The keys of engines: read once, sent as a header, and shown nowhere else.

An engine may have two: an api key for ordinary pages, which refuse the admin key, and an admin key for those that reach
into the engine, which then refuse the api key.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import quote

from pydantic import SecretStr

from satwatch.errors import ConfigError, required
from satwatch.probe.address import SAFE_IN_PATH

API_KEY_VARIABLE: Final = "SATWATCH_ENGINE_API_KEY"
ADMIN_KEY_VARIABLE: Final = "SATWATCH_ENGINE_ADMIN_KEY"
HIDDEN: Final = "**********"
_WANTED: Final = "one key of printable ASCII characters, no spaces inside"
_MAX_CHARACTERS: Final = 4096
# A shorter key is no secret, and to strike out each of its letters would spoil versions and paths.
_LEAST_HIDDEN: Final = 4
_LEAST_KEY: Final = 16


@dataclass(frozen=True, slots=True)
class EngineKeys:
    """The keys of a fleet's engines; None: there is none.

    It can't be pickled: a key goes from its file into a header and nowhere else.

    Attributes:
        api_key: for everything but the weights' checksum.
        admin_key: for the checksum, and for it alone.

    >>> EngineKeys(api_key=SecretStr("planted"))
    EngineKeys(api_key=SecretStr('**********'), admin_key=None)
    """

    api_key: SecretStr | None = None
    admin_key: SecretStr | None = None

    def hide(self, text: str) -> str:
        """Return a text of somebody else's without the keys: an engine may repeat what it was sent.

        Struck out in upper and lower case, and as a URL or base64 has them; no more can be promised of a server that
        hides one on purpose.

        >>> EngineKeys(api_key=SecretStr("planted")).hide("no such key: Planted, or cGxhbnRlZA==")
        'no such key: **********, or **********'
        """
        secrets = {key.get_secret_value() for key in (self.api_key, self.admin_key) if key is not None}
        forms = {form for secret in secrets if len(secret) >= _LEAST_HIDDEN for form in _forms(secret)}
        # The longer first: one may be a part of the other.
        for form in sorted(forms, key=len, reverse=True):
            text = re.sub(re.escape(form), HIDDEN, text, flags=re.IGNORECASE | re.ASCII)
        return text

    def __reduce__(self) -> NoReturn:
        refusal = "keys of engines can't be pickled or copied"
        raise TypeError(refusal)


NO_KEYS: Final = EngineKeys()


def read_keys(api_key_file: Path | None, admin_key_file: Path | None, environ: Mapping[str, str]) -> EngineKeys:
    """Read the keys; a file beats the environment.

    Args:
        api_key_file: holds the api key and nothing else; None: no file.
        admin_key_file: holds the admin key.
        environ: the environment: SATWATCH_ENGINE_API_KEY and SATWATCH_ENGINE_ADMIN_KEY; empty counts as not set.

    Raises:
        ConfigError: a file that can't be read, or one that holds no key, named by the file and never by what is in it.
    """
    return EngineKeys(
        _read("api_key_file", api_key_file, API_KEY_VARIABLE, environ),
        _read("admin_key_file", admin_key_file, ADMIN_KEY_VARIABLE, environ),
    )


def _forms(secret: str) -> tuple[str, ...]:
    """Return what a key looks like where others write it."""
    return secret, quote(secret, safe=""), quote(secret, safe=SAFE_IN_PATH), b64encode(secret.encode()).decode()


def _read(setting: str, path: Path | None, variable: str, environ: Mapping[str, str]) -> SecretStr | None:
    if path is not None:
        return _checked(f"{setting} {path}", _bytes_of(setting, path))
    came = environ.get(variable, "")
    return _checked(variable, came.encode(errors="surrogateescape")) if came else None


def _bytes_of(setting: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_CHARACTERS + 2)  # a newline may follow
    except OSError as error:
        # What is long and in no folder that there is may be the key itself, in the place of its file.
        is_path = len(str(path)) < _LEAST_KEY or (len(path.parts) > 1 and os.path.isdir(path.parent))
        shown = path if is_path else HIDDEN
        refusal = f"{setting} {shown}: can't be read: {error.strerror}"
    except ValueError:  # a path with a null character
        refusal = f"{setting}: can't be read: no path"
    raise ConfigError(refusal)


def _checked(source: str, came: bytes) -> SecretStr:
    key = came.strip()
    if not key:
        raise ConfigError(required(source, "nothing", _WANTED))
    if len(key) > _MAX_CHARACTERS:
        raise ConfigError(required(source, "too much", f"{_WANTED}, at most {_MAX_CHARACTERS}"))
    if not all(0x21 <= byte <= 0x7E for byte in key):
        raise ConfigError(required(source, "other characters", _WANTED))
    return SecretStr(key.decode("ascii"))
