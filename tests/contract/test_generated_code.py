"""satwatch/v1 is what proto/ generates, and every protobuf that a trainer may have pinned can load it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EVERY_FIELD = Path(__file__).with_name("every_field.py")
RELEASES = (ROOT / "proto/protobuf-releases.txt").read_text().split()


def every_field(protobuf: Path | None = None) -> dict:
    """Run every_field.py, with the protobuf of a folder in front of the installed one."""
    path = [str(protobuf)] if protobuf else []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*path, str(ROOT)])}
    ran = subprocess.run([sys.executable, EVERY_FIELD], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def installed() -> dict:
    return every_field()


@pytest.mark.real(".venv-proto/.ready", "make parts")
def test_committed_code_is_what_the_contract_generates(tmp_path: Path) -> None:
    subprocess.run(["make", "--silent", "proto", f"PROTO_OUT={tmp_path}"], cwd=ROOT, check=True)
    generated = {file.name: file.read_bytes() for file in (tmp_path / "satwatch/v1").iterdir()}
    committed = {file.name: file.read_bytes() for file in (ROOT / "satwatch/v1").glob("*_pb2*.py*")}
    assert generated.keys() == {"satwatch_pb2.py", "satwatch_pb2.pyi", "satwatch_pb2_grpc.py"}
    assert committed.keys() == generated.keys()
    for name in generated:
        assert committed[name] == generated[name], f"satwatch/v1/{name} is out of date: make proto"


def test_every_field_of_every_message_survives_the_wire(installed: dict) -> None:
    assert {"ComputeBoundsRequest/0", "ComputeBoundsRequest/1"} <= installed["messages"].keys()
    for name, message in installed["messages"].items():
        assert message["unset"] == [], name
        assert message["same"], name


def test_the_releases_cover_each_major_version_in_use() -> None:
    assert [release.split(".")[0] for release in RELEASES] == ["4", "5", "6", "7"]
    assert RELEASES[0].startswith("4.25."), "the lowest protobuf that pyproject.toml admits"


@pytest.mark.parametrize(
    "release",
    [pytest.param(release, marks=pytest.mark.real(f".protobuf/{release}", "make parts")) for release in RELEASES],
)
def test_another_protobuf_release_reads_and_writes_the_same_bytes(release: str, installed: dict) -> None:
    ran = every_field(ROOT / ".protobuf" / release)
    assert ran["release"] == release
    assert ran["messages"] == installed["messages"]
