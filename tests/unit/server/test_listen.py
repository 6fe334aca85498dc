"""Addresses to listen on: what is refused before gRPC would take it silently."""

from __future__ import annotations

import contextlib
import socket

import pytest

from satwatch.addresses import listening_requirement
from satwatch.errors import ConfigError
from satwatch.server.listen import SocketFile, ensure_free


def test_a_taken_port_is_refused_with_the_reason():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConfigError) as refused:
            ensure_free(address)
    assert str(refused.value) == (
        f"listen: got {address} (Address already in use), required an address that is free and can be bound"
    )
    ensure_free(address)


def test_a_socket_file_that_nobody_serves_is_removed(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    ensure_free(f"unix:{path}")
    assert not path.exists()


def test_a_served_socket_is_left_alone(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        with pytest.raises(ConfigError, match=r"\(a sidecar serves there\), required a path that is free"):
            ensure_free(f"unix:{path}")
        assert path.exists()


def test_a_plain_file_is_left_alone(tmp_path):
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(ConfigError, match=r"\(a file that is no socket\)"):
        ensure_free(f"unix:{path}")
    assert path.read_text() == "data"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="No such file or directory"):
        ensure_free(f"unix:{tmp_path}/none/s")


@contextlib.contextmanager
def published(path):
    file = SocketFile(f"unix:{path}")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(file.bound.removeprefix("unix:"))
        server.listen()
        file.publish()
        yield file


def test_a_published_socket_is_reached_by_its_name_alone_and_goes(tmp_path):
    with published(tmp_path / "s") as file:
        assert [path.name for path in tmp_path.iterdir()] == ["s"]
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))
        file.remove()
        assert not list(tmp_path.iterdir())
        file.remove()


def test_a_successors_socket_is_not_removed(tmp_path):
    path = tmp_path / "s"
    with published(path) as first:
        path.unlink()
        with published(path) as second:
            first.remove()
            assert path.is_socket()
            second.remove()
            assert not path.exists()


def test_a_name_taken_meanwhile_is_left_alone(tmp_path):
    path = tmp_path / "s"
    path.write_text("data")
    with pytest.raises(ConfigError, match="File exists"), published(path):
        pass
    assert path.read_text() == "data"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_the_longest_path_can_be_bound(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = "f" * 98
    (tmp_path / folder).mkdir()
    assert listening_requirement(f"unix:{folder}/s") is None
    with published(f"{folder}/s") as file:
        file.remove()
