"""What the wheel carries: everything that a user imports, and nothing beside the package."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

import satwatch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    with ZipFile(file) as opened:
        yield opened


def read(wheel: ZipFile, name: str) -> str:
    return wheel.read(f"satwatch-{satwatch.__version__}.dist-info/{name}").decode()


def test_the_package_is_whole_and_alone(wheel: ZipFile) -> None:
    names = set(wheel.namelist())
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "satwatch").rglob("*.py*") if path.suffix != ".pyc"}
    assert {"satwatch/py.typed", "satwatch/v1/satwatch_pb2.py", "satwatch/v1/satwatch_pb2_grpc.py"} <= names
    assert sources <= names
    assert {name.partition("/")[0] for name in names} == {"satwatch", f"satwatch-{satwatch.__version__}.dist-info"}


def test_the_base_install_needs_four_packages_only(wheel: ZipFile) -> None:
    needed = message_from_string(read(wheel, "METADATA")).get_all("Requires-Dist")
    base = {requirement.partition(">")[0] for requirement in needed if "extra ==" not in requirement}
    assert base == {"grpcio", "numpy", "protobuf", "torch"}


def test_the_command_and_the_licence_come_with_it(wheel: ZipFile) -> None:
    assert "satwatch = satwatch.cli:main" in read(wheel, "entry_points.txt")
    assert "Apache License" in read(wheel, "licenses/LICENSE")


def test_the_dashboard_comes_with_the_package_in_both_archives(wheel: ZipFile, tmp_path: Path) -> None:
    files = {
        path.relative_to(ROOT)
        for path in (ROOT / "dashboard").rglob("*")
        if "__pycache__" not in path.parts and path.is_file()
    }
    wanted = {f"satwatch/_dashboard/{path.relative_to('dashboard')}" for path in files}
    assert "satwatch/_dashboard/__init__.py" in wanted
    assert wanted <= set(wheel.namelist())

    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert wanted <= set(names)
    assert len(names) == len(set(names))
