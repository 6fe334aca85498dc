"""The versions that a bug report needs."""

import json
import platform
import sys
from importlib.metadata import version

import pytest
import torch
from typer.testing import CliRunner

import satwatch
import satwatch.cli.version
from satwatch.cli.app import app

PACKAGES = (
    *("torch", "numpy", "grpcio", "protobuf", "typer", "rich", "pyarrow", "safetensors", "prometheus-client"),
    *("pydantic", "sqlalchemy", "psycopg", "httpx", "streamlit", "plotly"),
)


@pytest.mark.skipif(torch.cuda.is_available(), reason="it then tells of the devices too")
def test_versions_are_those_installed():
    result = CliRunner().invoke(app, ["version", "--json"])

    assert json.loads(result.stdout) == {
        "satwatch": satwatch.__version__,
        "python": platform.python_version(),
        "os": platform.platform(),
        **{package: version(package) for package in PACKAGES},
        "cuda": torch.version.cuda or "not in this build of torch",
    }


def test_a_line_a_package():
    lines = CliRunner().invoke(app, ["version"]).stdout.splitlines()

    assert lines[0].split() == ["satwatch", satwatch.__version__]
    assert [line.split()[0] for line in lines] == ["satwatch", "python", "os", *PACKAGES, "cuda"]


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(satwatch.cli.version, "PACKAGES", ("no-such-package",))

    result = CliRunner().invoke(app, ["version", "--json"])

    assert json.loads(result.stdout)["no-such-package"] == "not installed"


@pytest.mark.parametrize(
    ("release", "devices", "said"),
    [(None, 0, "not in this build of torch"), ("12.4", 0, "12.4, no device"), ("12.4", 2, "12.4, 2 devices")],
)
def test_cuda_is_what_torch_has(release: str | None, devices: int, said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.version, "cuda", release)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(devices))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)

    assert json.loads(CliRunner().invoke(app, ["version", "--json"]).stdout)["cuda"] == said


def test_without_torch_cuda_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)

    assert json.loads(CliRunner().invoke(app, ["version", "--json"]).stdout)["cuda"] == "not installed"
