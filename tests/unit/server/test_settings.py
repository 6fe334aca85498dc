"""Settings: precedence, and one bad file for each fault; its first line says how it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from satwatch.errors import ConfigError
from satwatch.server import Settings, load_settings

BAD = sorted((Path(__file__).parents[2] / "config_bad").glob("*.toml"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_file_is_refused_by_file_and_field(path):
    requirement = path.read_text().splitlines()[0].removeprefix("# ")
    with pytest.raises(ConfigError) as refused:
        load_settings(path)
    assert str(refused.value) == f"{path}: {requirement}"


def test_every_setting_has_a_bad_file():
    faulty = {name for name in Settings.model_fields if any(path.stem.startswith(name) for path in BAD)}
    assert faulty == set(Settings.model_fields)


def test_defaults_listen_on_loopback_only():
    settings = load_settings()
    assert settings.listen == ("127.0.0.1:4820",)
    assert (settings.metrics_host, settings.metrics_port) == ("127.0.0.1", 9820)
    assert settings.model_fields_set == set()


def test_arguments_beat_the_file_and_the_file_beats_defaults(tmp_path):
    path = tmp_path / "satwatch.toml"
    path.write_text('threads = 3\nmetrics_port = 1\nlisten = ["localhost:0"]\n')
    settings = load_settings(path, {"metrics_port": 2, "device": None})
    assert (settings.threads, settings.metrics_port, settings.device) == (3, 2, "auto")
    assert settings.listen == ("localhost:0",)
    assert settings.model_fields_set == {"threads", "metrics_port", "listen"}


def test_a_bad_argument_is_not_blamed_on_the_file(tmp_path):
    path = tmp_path / "satwatch.toml"
    path.write_text("threads = 3\n")
    with pytest.raises(ConfigError) as refused:
        load_settings(path, {"threads": 0})
    assert str(refused.value) == "threads: got 0, required a whole number from 1 to 1024"


def test_a_file_that_is_not_there(tmp_path):
    path = tmp_path / "none.toml"
    with pytest.raises(ConfigError, match=r"none\.toml: got No such file or directory, required a readable TOML file"):
        load_settings(path)


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary\.toml: got .*decode.*, required a readable TOML file"):
        load_settings(path)


def test_settings_are_frozen():
    with pytest.raises(ValidationError):
        Settings().threads = 2
