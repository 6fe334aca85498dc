"""``satwatch check-config`` and how ``satwatch serve`` takes its settings."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import satwatch.server
from satwatch.cli.app import app
from satwatch.server.settings import Settings, load_settings


def run(*arguments: object, **env: str) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), env=env)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "satwatch.toml"
    path.write_text('listen = ["127.0.0.1:0", "unix:/run/a \\"b\\".sock"]\nmetrics_port = 1234\n')
    return path


def test_effective_settings_are_toml_with_their_origin(file: Path):
    result = run("check-config", file)

    assert result.exit_code == 0
    expected = Settings(listen=("127.0.0.1:0", 'unix:/run/a "b".sock'), metrics_port=1234).model_dump(
        mode="json", exclude_none=True
    )
    assert tomllib.loads(result.stdout) == expected
    origins = {line.split(" = ")[0]: line.rpartition("# ")[2] for line in result.stdout.splitlines() if " = " in line}
    assert {name for name, origin in origins.items() if origin == "satwatch.toml"} == {"listen", "metrics_port"}
    assert set(origins.values()) == {"satwatch.toml", "default"}


def test_what_it_prints_is_a_file_it_takes(file: Path, tmp_path: Path):
    again = tmp_path / "again.toml"
    again.write_text(run("check-config", file).stdout)

    assert tomllib.loads(run("check-config", again).stdout) == tomllib.loads(again.read_text())


def test_the_probe_is_a_table_with_its_own_origins(tmp_path: Path):
    path = tmp_path / "satwatch.toml"
    path.write_text(
        'threads = 2\n[probe]\nengines = ["10.0.0.1:30000"]\nrun = "a \\"b\\" \U0001f600 \\u007f"\nmax_load = 0.0001\n'
    )

    result = run("check-config", path)

    assert result.exit_code == 0
    shown = tomllib.loads(result.stdout)
    probe = load_settings(path).probe
    assert probe is not None
    assert shown["probe"] == probe.model_dump(mode="json", exclude_none=True)
    assert shown["probe"]["run"] == 'a "b" \U0001f600 \x7f'
    assert set(shown) == set(Settings.model_fields)
    origins = {line.split(" = ")[0]: line.rpartition("# ")[2] for line in result.stdout.splitlines() if " = " in line}
    given = {name for name, origin in origins.items() if origin == "satwatch.toml"}
    assert given == {"threads", "engines", "run", "max_load"}
    again = tmp_path / "again.toml"
    again.write_text(result.stdout)
    assert load_settings(again) == load_settings(path)


def test_what_a_key_file_holds_is_not_printed(tmp_path: Path):
    key = tmp_path / "key"
    key.write_text("sk-planted")
    path = tmp_path / "satwatch.toml"
    path.write_text(f'[probe]\nengines = ["10.0.0.1:30000"]\napi_key_file = "{key}"\nadmin_key_file = "{key}"\n')

    result = run("check-config", path)

    assert result.exit_code == 0
    assert f'api_key_file = "{key}"' in result.stdout
    assert "sk-planted" not in result.output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("metrics_prt = 1", "metrics_prt: no such setting; did you mean metrics_port?"),
        ("metrics_port = 70000", "metrics_port: got 70000"),
        ("listen = ", "no TOML: "),
    ],
)
def test_a_bad_file_names_file_and_setting(content: str, message: str, tmp_path: Path):
    path = tmp_path / "bad.toml"
    path.write_text(content)

    result = run("check-config", path)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"satwatch: {path}: {message}")


def test_every_fault_is_a_line(tmp_path: Path):
    path = tmp_path / "bad.toml"
    path.write_text("threads = 0\nmax_runs = 0\n")

    lines = run("check-config", path).stderr.splitlines()

    assert [line.partition(": got")[0] for line in lines] == [
        f"satwatch: {path}: threads",
        f"satwatch: {path}: max_runs",
    ]


def test_a_file_from_the_environment_is_said_to_be(file: Path, tmp_path: Path):
    good = run("check-config", SATWATCH_CONFIG=str(file))
    absent = tmp_path / "absent.toml"

    assert good.exit_code == 0
    assert "# satwatch.toml, from SATWATCH_CONFIG\n" in good.stdout
    for command in ("check-config", "serve"):
        result = run(command, SATWATCH_CONFIG=str(absent))
        assert (result.exit_code, result.stderr) == (2, f"satwatch: {absent}, from SATWATCH_CONFIG: no such file\n")
    assert run("check-config", absent, SATWATCH_CONFIG=str(file)).stderr == f"satwatch: {absent}: no such file\n"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Record what serve would run with, instead of running."""
    given: list[Settings] = []

    def record(settings: Settings) -> int:
        given.append(settings)
        return 0

    monkeypatch.setattr(satwatch.server, "serve", record)
    return given


def test_arguments_beat_the_file_and_the_file_beats_the_defaults(served: list[Settings], file: Path):
    arguments: list[Any] = ["--config", file, "--listen", "127.0.0.1:0", "--listen", "unix:/run/x.sock"]
    options = ["--device", "cpu", "--threads", 2, "--log-level", "error"]

    assert run("serve", *arguments, *options).exit_code == 0

    (settings,) = served
    assert settings.listen == ("127.0.0.1:0", "unix:/run/x.sock")
    assert (settings.device, settings.threads, settings.log_level) == ("cpu", 2, "error")
    assert settings.metrics_port == 1234
    assert settings.max_runs == Settings().max_runs


def test_the_environment_gives_the_file(served: list[Settings], file: Path):
    assert run("serve", SATWATCH_CONFIG=str(file)).exit_code == 0
    assert served[0].metrics_port == 1234


def test_no_arguments_are_the_defaults(served: list[Settings]):
    assert run("serve").exit_code == 0
    assert served == [Settings()]


def test_the_exit_code_is_the_sidecars(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(satwatch.server, "serve", lambda settings: 2)

    assert run("serve").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--listen", "nonsense"], "listen"),
        (["--metrics-port", "70000"], "metrics_port"),
        (["--device", "tpu"], "device"),
        (["--threads", "0"], "threads"),
    ],
)
def test_a_bad_argument_is_named(arguments: list[str], field: str):
    result = run("serve", *arguments)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"satwatch: {field}: got ")
    assert arguments[1] in result.stderr
