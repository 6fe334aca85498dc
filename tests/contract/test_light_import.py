"""What an import may load: the client joins a trainer's environment and must not bring a server's."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Of satwatch's extras, and of the parts that later extras bring.
NOT_IN_THE_BASE_INSTALL = frozenset(
    {
        "httpx",
        "plotly",
        "prometheus_client",
        "pyarrow",
        "pydantic",
        "rich",
        "safetensors",
        "sqlalchemy",
        "streamlit",
        "typer",
    }
)

# grpc itself imports these two where they are installed, so they may be loaded but not needed.
MAY_BE_ABSENT = NOT_IN_THE_BASE_INSTALL | {"grpc_health", "grpc_reflection"}

# As on a machine without them: installed here or not, these packages can't be imported.
BLOCKED = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in {set(MAY_BE_ABSENT)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}: not in the base install", name=name)

sys.meta_path.insert(0, Blocked())
"""


def run(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter loads for a statement, beyond those it starts with."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before, sep='\\n')"
    return set(run(program).split())


@pytest.mark.parametrize("module", ["satwatch.client", "satwatch.hooks", "satwatch.hooks.torch", "satwatch.sat"])
def test_no_package_of_an_extra_is_loaded(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert {"satwatch", module, "torch"} <= loaded
    assert loaded & NOT_IN_THE_BASE_INSTALL == set()


def test_the_client_imports_where_no_extra_is_installed() -> None:
    assert run(BLOCKED + "import satwatch; print(satwatch.connect.__name__)").strip() == "connect"


def test_the_block_blocks() -> None:
    with pytest.raises(AssertionError, match="not in the base install"):
        run(BLOCKED + "import pydantic")


def test_the_package_itself_loads_neither_torch_nor_grpc() -> None:
    loaded = loaded_by("import satwatch, satwatch.v1.satwatch_pb2")
    assert "google.protobuf" in loaded
    assert loaded & {"torch", "numpy", "grpc"} == set()


def test_what_engines_say_is_read_without_torch_and_grpc() -> None:
    loaded = loaded_by("import satwatch.engines")
    assert "numpy" in loaded
    assert loaded & {"torch", "grpc", "google.protobuf"} == set()


def test_a_sidecar_reads_its_settings_without_the_probes_extra() -> None:
    assert {"pydantic", "httpx"} & loaded_by("import satwatch.server.settings") == {"pydantic"}


def test_a_probe_that_reports_to_no_sidecar_starts_without_torch_and_grpc() -> None:
    loaded = loaded_by("import satwatch.probe.watch, satwatch.probe.loading")
    assert "httpx" in loaded
    assert loaded & {"torch", "grpc", "google.protobuf"} == set()


def test_types_and_errors_load_the_standard_library_only() -> None:
    loaded = {name.partition(".")[0] for name in loaded_by("import satwatch.types, satwatch.errors")}
    assert loaded - sys.stdlib_module_names == {"satwatch"}


def test_subpackages_are_there_without_importing_them_by_name():
    code = "import satwatch; print(satwatch.sat.clip_bounds.__name__, satwatch.client.connect.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["clip_bounds", "connect"]
