"""Settings: precedence, and one bad file for each fault; its first line says how it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from satwatch.errors import ConfigError
from satwatch.probe.settings import ProbeSettings
from satwatch.server import Settings, load_settings
from satwatch.server import settings as settings_module
from satwatch.server.history_settings import HistorySettings

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
    faulty = {
        name for name in ProbeSettings.model_fields if any(path.stem.startswith(f"probe_{name}_") for path in BAD)
    }
    assert faulty == set(ProbeSettings.model_fields)
    faulty = {
        name for name in HistorySettings.model_fields if any(path.stem.startswith(f"history_{name}_") for path in BAD)
    }
    assert faulty == set(HistorySettings.model_fields)


def test_no_refusal_shows_a_key():
    planted = [path for path in BAD if "sk-planted" in path.read_text()]
    assert len(planted) == 4
    for path in planted:
        with pytest.raises(ConfigError) as refused:
            load_settings(path)
        assert "sk-planted" not in str(refused.value)


def test_all_faults_of_the_probe_are_reported_with_the_others(tmp_path):
    path = tmp_path / "satwatch.toml"
    path.write_text(
        'threads = 0\n[probe]\nengines = ["http://", "10.0.0.1:30000", 3]\nperiod_seconds = 0\ntimeout_second = 1\n'
    )
    with pytest.raises(ConfigError) as refused:
        load_settings(path)
    assert str(refused.value).splitlines() == [
        f"{path}: threads: got 0, required a whole number from 1 to 1024",
        f'{path}: probe.engines: got "http://", required an http or https URL or HOST:PORT, without credentials',
        f"{path}: probe.engines: got 3, required a list of URLs in quotes",
        f"{path}: probe.period_seconds: got 0, required a number from 0.05 to 3600",
        f"{path}: probe.timeout_second: no such setting; did you mean probe.timeout_seconds?",
    ]


def test_the_probe_needs_its_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(settings_module, "find_spec", lambda name: None)
    path = tmp_path / "satwatch.toml"
    path.write_text('[probe]\nengines = ["10.0.0.1:30000"]\n')
    with pytest.raises(ConfigError) as refused:
        load_settings(path)
    assert str(refused.value) == (
        f"{path}: probe: got a table, required the extra probe: "
        "pip install 'satwatch[probe]', or from a checkout: pip install '.[probe]'"
    )
    assert load_settings().probe is None


def test_the_probe_of_a_file(tmp_path):
    path = tmp_path / "satwatch.toml"
    path.write_text('[probe]\nengines = ["10.0.0.1:30000"]\napi_key_file = "key"\nperiod_seconds = 2\n')
    probe = load_settings(path, {"threads": 3}).probe
    assert (probe.engines, probe.api_key_file, probe.period_seconds) == (("http://10.0.0.1:30000",), Path("key"), 2.0)
    assert probe.model_fields_set == {"engines", "api_key_file", "period_seconds"}


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


def test_all_faults_of_a_file_are_reported_at_once(tmp_path):
    path = tmp_path / "satwatch.toml"
    path.write_text('threads = 0\nlissten = []\nlisten = ["a", "127.0.0.1:0", "b"]\nmax_runs = "many"\n')
    with pytest.raises(ConfigError) as refused:
        load_settings(path, {"device": "tpu"})
    address = "required HOST:PORT with a port of 0 to 65535, or unix:PATH"
    assert str(refused.value).splitlines() == [
        f'{path}: listen: got "a", {address}',
        f'{path}: listen: got "b", {address}',
        'device: got "tpu", required auto, cpu, cuda or cuda:N',
        f"{path}: threads: got 0, required a whole number from 1 to 1024",
        f'{path}: max_runs: got "many", required a whole number from 1 to 100000',
        f"{path}: lissten: no such setting; did you mean listen?",
    ]


@pytest.mark.parametrize(
    ("listen", "host", "port", "meets"),
    [
        ("127.0.0.1:4820", "127.0.0.1", 4820, True),
        ("localhost:4820", "127.0.0.1", 4820, True),
        ("[::1]:4820", "localhost", 4820, True),
        ("[::1]:4820", "0:0:0:0:0:0:0:1", 4820, True),
        ("127.0.0.1:4820", "127.0.0.1", 4821, False),
        ("127.0.0.2:4820", "127.0.0.1", 4820, False),
        ("[::1]:4820", "127.0.0.1", 4820, False),
        ("127.0.0.2:4820", "localhost", 4820, False),
        ("127.0.0.1:0", "127.0.0.1", 0, False),
        ("unix:/run/a:4820", "127.0.0.1", 4820, False),
    ],
)
def test_metrics_need_a_port_of_their_own(listen, host, port, meets):
    given = {"listen": (listen,), "metrics_host": host, "metrics_port": port}
    if not meets:
        assert load_settings(overrides=given).metrics_port == port
        return
    with pytest.raises(ConfigError) as refused:
        load_settings(overrides=given)
    assert str(refused.value) == f"metrics_port: got {port}, required another port than that of listen, {listen}"


def test_ports_of_a_refused_host_are_not_compared():
    with pytest.raises(ConfigError) as refused:
        load_settings(overrides={"metrics_host": "example.com", "metrics_port": 4820})
    assert str(refused.value).startswith("metrics_host: got ")
    assert "\n" not in str(refused.value)


def test_a_value_of_any_length_is_a_short_message():
    with pytest.raises(ConfigError) as refused:
        load_settings(overrides={"device": "x" * 10_000})
    assert len(str(refused.value)) < 200


def test_a_file_has_the_name_that_it_is_given(tmp_path):
    path = tmp_path / "satwatch.toml"
    path.write_text("threads = 0\n")
    for file, fault in ((path, "threads: got 0"), (tmp_path / "absent", "no such file"), (tmp_path, "can't be read")):
        with pytest.raises(ConfigError, match=f"^the file: {fault}"):
            load_settings(file, name="the file")


def test_a_file_that_is_not_there(tmp_path):
    path = tmp_path / "none.toml"
    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        load_settings(path)


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary\.toml: no TOML: byte 0xff is not UTF-8"):
        load_settings(path)


def test_settings_are_frozen():
    with pytest.raises(ValidationError):
        Settings().threads = 2
