"""Files that commands write: one rule for all of them.

A file that is there already is left alone unless ``--force`` is given, and its folder has to be there: a slip of the
keyboard neither costs a file nor makes a folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from satwatch.errors import ConfigError, required

Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]

_FORCE: Final = "a new name, or --force to replace it"


def refuse_lost(option: str, *files: Path, force: bool) -> None:
    """Refuse files that can't be written, or would be lost, before any work is done for them.

    Args:
        option: what the user typed to name them.
        files: to be written.
        force: those that are there may be replaced.

    Raises:
        ConfigError: a folder, a file in a folder that doesn't exist, or without ``force`` one that is there already.
    """
    for file in files:
        if file.is_dir():
            raise ConfigError(required(option, f"{file}, a folder", "a file"))
        if not file.absolute().parent.is_dir():
            came = f"{file}, but there is no folder {file.absolute().parent}"
            raise ConfigError(required(option, came, "a folder that exists"))
        if file.is_file() and not force:
            raise ConfigError(required(option, f"{file}, which is there already", _FORCE))


def make_folder(option: str, folder: Path) -> None:
    """Make a folder that the user named as one, if it isn't there; what it is to lie in has to be.

    Raises:
        ConfigError: it can't be made.
    """
    if folder.is_dir():
        return
    try:
        folder.mkdir()
    except OSError as error:
        came = f"{folder} ({error.strerror})"
        raise ConfigError(required(option, came, "a folder, or a new one in a folder that exists")) from error
    typer.echo(f"{folder}: a new folder")


def write_text(option: str, file: Path, text: str) -> None:
    """Write a file and say so.

    Raises:
        ConfigError: it can't be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(required(option, f"{file} ({error.strerror})", "a file that can be written")) from error
    typer.echo(file)
