"""An engine's URL is meant or refused, and its name holds no credentials."""

from __future__ import annotations

import asyncio

import pytest

from satwatch.errors import ConfigError, ProbeError
from satwatch.probe.address import URL, engine_name, engine_url, read_url
from satwatch.probe.http.discovery import FileEngines
from satwatch.probe.http.engine import HttpEngine
from satwatch.probe.loading import load_probe_settings
from satwatch.probe.settings import ProbeSettings


@pytest.mark.parametrize(
    ("url", "normal", "name"),
    [
        ("http://127.0.0.1:30000", "http://127.0.0.1:30000", "127.0.0.1:30000"),
        ("HTTP://Rollout-3:30000//", "http://rollout-3:30000", "rollout-3:30000"),
        ("http://host", "http://host:80", "host:80"),
        ("Host:30000", "http://host:30000", "host:30000"),
        ("127.0.0.1:30000/", "http://127.0.0.1:30000", "127.0.0.1:30000"),
        ("[::1]:30000", "http://[::1]:30000", "[::1]:30000"),
        ("http://host:1/a%20ü", "http://host:1/a%20%C3%BC", "host:1/a%20%C3%BC"),
        ("https://host", "https://host:443", "host:443"),
        ("https://host:8443/a/b/", "https://host:8443/a/b", "host:8443/a/b"),
        ("http://[::1]:30000", "http://[::1]:30000", "[::1]:30000"),
        ("http://bücher:1", "http://xn--bcher-kva:1", "xn--bcher-kva:1"),
    ],
)
def test_a_url_has_one_form_and_a_name(url, normal, name):
    assert engine_url(url) == normal
    assert engine_url(normal) == normal
    assert engine_name(url) == name


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host",
        "host/path",
        "host:port",
        "http://[::1]x:30000",
        "http://[1.2.3.4]:30000",
        "http://a..b:30000",
        "//host:30000",
        "ftp://host:30000",
        "grpc://host:30000",
        "http://",
        "http://:30000",
        "http://host:99999",
        "http://host:0",
        "http://host:-1",
        "http://host:port",
        "http://ho st:30000",
        " http://host:30000",
        "http://host:30000\n",
        "http://host\\evil",
        "http://[::1",
        "http://" + "h" * 3000,
        "http://host:1/" + "p" * 200,
        "http://\x00",
    ],
)
def test_what_is_no_url_of_an_engine_is_refused_by_field(url):
    with pytest.raises(ConfigError, match=r"^engine: got .*, required") as refused:
        engine_url(url)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@host:30000",
        "http://hunter2@host",
        "ftp://user:hunter2@host",
        "user:hunter2@host",
        "http://host:99999/?key=hunter2",
        "http://host#hunter2",
    ],
)
def test_credentials_are_refused_and_not_repeated(url):
    with pytest.raises(ConfigError, match=r"^router: got a URL with a ") as refused:
        engine_url(url, "router")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ValueError, match=f"^{URL}$"):
        read_url(url)


@pytest.mark.parametrize("given", ["host:30000", "https://host/prefix/", "[::1]:1", "host", "ftp://host:1"])
def test_settings_and_files_and_arguments_have_one_rule(given, tmp_path):
    file = tmp_path / "engines"
    file.write_text(given)
    try:
        url = read_url(given)
    except ValueError:
        with pytest.raises(ConfigError):
            load_probe_settings(overrides={"engines": (given,)})
        with pytest.raises(ProbeError):
            asyncio.run(FileEngines(file).urls())
        with pytest.raises(ConfigError):
            HttpEngine(given)
        return
    assert ProbeSettings(engines=(given,), router=given).engines == (url,)
    assert ProbeSettings(router=given).router == url
    assert asyncio.run(FileEngines(file).urls()) == (url,)
    assert HttpEngine(given).name == engine_name(url)
