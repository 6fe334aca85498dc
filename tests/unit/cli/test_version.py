"""The versions that a bug report needs."""

import json
import platform
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

import satwatch
import satwatch.cli.version
from satwatch.cli.app import app


def test_versions_are_those_installed():
    result = CliRunner().invoke(app, ["version", "--json"])

    assert json.loads(result.stdout) == {
        "satwatch": satwatch.__version__,
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "numpy", "grpcio", "protobuf")},
    }


def test_a_line_a_package():
    lines = CliRunner().invoke(app, ["version"]).stdout.splitlines()

    assert lines[0].split() == ["satwatch", satwatch.__version__]
    assert [line.split()[0] for line in lines] == ["satwatch", "python", "torch", "numpy", "grpcio", "protobuf"]


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(satwatch.cli.version, "PACKAGES", ("no-such-package",))

    result = CliRunner().invoke(app, ["version", "--json"])

    assert json.loads(result.stdout)["no-such-package"] == "not installed"
