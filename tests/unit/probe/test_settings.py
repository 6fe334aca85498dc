"""What a probe can be told, and how it refuses what can't be meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from satwatch.errors import ConfigError
from satwatch.probe.loading import load_probe_settings
from satwatch.probe.settings import ProbeSettings


def refused(tmp_path: Path, toml: str, **overrides: object) -> list[str]:
    file = tmp_path / "satwatch.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        load_probe_settings(file, overrides, "s.toml")
    return str(caught.value).splitlines()


def test_the_defaults():
    settings = ProbeSettings(engines=("http://a:1",))

    assert (settings.period_seconds, settings.timeout_seconds, settings.max_load) == (5.0, 2.0, 0.01)
    assert (settings.canary, settings.checksum, settings.max_engines, settings.run) == (True, True, 256, "")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("127.0.0.1:30000", "http://127.0.0.1:30000"),
        ("http://host:1/", "http://host:1"),
        ("https://host/prefix", "https://host:443/prefix"),
        ("[::1]:30000", "http://[::1]:30000"),
    ],
)
def test_a_url_gets_its_scheme(given: str, url: str):
    assert ProbeSettings(engines=(given,)).engines == (url,)
    assert ProbeSettings(router=given).router == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host",
        "ftp://host:1",
        "http://",
        "http://host:99999",
        "http://host:0",
        "host:x",
        "a b:1",
        "http://h:1?k=secret",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str):
    with pytest.raises(ConfigError, match=r"^engines: got .*, required an http or https URL or HOST:PORT"):
        load_probe_settings(overrides={"engines": (url,)})
    with pytest.raises(ConfigError, match=r"^router: got ") as caught:
        load_probe_settings(overrides={"router": url})
    assert "secret" not in str(caught.value)


def test_credentials_in_a_url_are_refused_and_not_repeated(tmp_path: Path):
    said = refused(tmp_path, '[probe]\nengines = ["http://user:planted@host:1"]\nrouter = "http://planted@host"\n')

    assert len(said) == 2
    assert said[0].startswith("s.toml: probe.engines: got a value that may hold a key and isn't shown, required ")
    assert "planted" not in "".join(said)
    with pytest.raises(ValidationError) as caught:
        ProbeSettings(engines=("http://user:planted@host:1",))
    assert "planted" not in str(caught.value)


def test_nothing_to_look_at_is_refused(tmp_path: Path):
    assert refused(tmp_path, "[probe]\nrun = 'r'\n") == [
        "s.toml: probe: got none of them, required engines, router or engines_file"
    ]
    assert refused(tmp_path, "threads = 1\n") == [
        "s.toml: probe: got none of them, required engines, router or engines_file"
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("period_seconds = 0.01", "period_seconds: got 0.01, required a number from 0.05 to 3600"),
        ("period_seconds = nan", "period_seconds: got nan, required a number from 0.05 to 3600"),
        ("period_seconds = '1'", 'period_seconds: got "1", required a number from 0.05 to 3600'),
        ("timeout_seconds = 601", "timeout_seconds: got 601, required a number from 0.05 to 600"),
        ("max_load = 0", "max_load: got 0, required a number from 0.0001 to 1"),
        ("max_load = 1.5", "max_load: got 1.5, required a number from 0.0001 to 1"),
        ("canary_pulse_seconds = 0", "canary_pulse_seconds: got 0, required a number from 1 to 86400"),
        ("canary_limit = 0.0", "canary_limit: got 0.0, required a number above 0, at most 100"),
        ("max_engines = 0", "max_engines: got 0, required a whole number from 1 to 4096"),
        ("canary = 1", "canary: got 1, required true or false"),
        ("run = 1", "run: got 1, required a string of at most 200 characters"),
        ("engines_file = 1", "engines_file: got 1, required a path in quotes"),
        ("engines = 'a:1'", 'engines: got "a:1", required a list of URLs, at most 4096'),
        ("period = 1.0", "period: no such setting; did you mean probe.period_seconds?"),
    ],
)
def test_a_fault_names_its_file_its_setting_and_what_is_required(tmp_path: Path, line: str, said: str):
    first = "" if line.startswith("engines =") else 'engines = ["a:1"]\n'

    assert refused(tmp_path, f"[probe]\n{first}{line}\n") == [f"s.toml: probe.{said}"]


def test_every_fault_is_said_at_once(tmp_path: Path):
    toml = "[probe]\nengines = ['a:b', 'a:c']\nmax_load = 2\nnonsense = 1\n"

    assert [line.split(":")[1] for line in refused(tmp_path, toml)] == [
        " probe.engines",
        " probe.engines",
        " probe.max_load",
        " probe.nonsense",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x = [", "no TOML: "),
        (b"\xff", "no TOML: byte 0xff is not UTF-8"),
        (b"probe = 1", "probe: got 1, required a table"),
    ],
)
def test_a_file_without_the_table_is_refused(tmp_path: Path, content: bytes, said: str):
    file = tmp_path / "s.toml"
    file.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load_probe_settings(file, name="s.toml")

    assert str(caught.value).startswith(f"s.toml: {said}")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="none: no such file"):
        load_probe_settings(tmp_path / "none")


def test_arguments_beat_the_table_and_a_source_beats_all_sources(tmp_path: Path):
    file = tmp_path / "satwatch.toml"
    file.write_text('threads = 2\n[probe]\nrouter = "r:1"\nengines_file = "e"\nperiod_seconds = 1\nrun = "r"\n')

    kept = load_probe_settings(file, {"period_seconds": 2.0, "run": None})
    replaced = load_probe_settings(file, {"engines": ("a:1",)})

    assert (kept.router, kept.engines_file, kept.period_seconds, kept.run) == ("http://r:1", Path("e"), 2.0, "r")
    assert (replaced.engines, replaced.router, replaced.engines_file) == (("http://a:1",), None, None)


def test_a_fault_of_an_argument_names_no_file(tmp_path: Path):
    said = refused(tmp_path, '[probe]\nengines = ["a:1"]\n', timeout_seconds=0.0)

    assert said == ["timeout_seconds: got 0.0, required a number from 0.05 to 600"]
