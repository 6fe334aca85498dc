"""Whose client a hook asks, and that it is the trainer's."""

from __future__ import annotations

import pytest
import torch

from satwatch.client import Client, FakeClient, connect
from satwatch.errors import ConfigError
from satwatch.hooks import use
from satwatch.hooks.core import settings
from satwatch.hooks.core.settings import client_for, distributed_rank, process_client
from satwatch.types import Rule


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("SATWATCH_RUN", "SATWATCH_ADDRESS", "SATWATCH_CLIENT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(settings, "_process_client", [])


@pytest.fixture
def file(tmp_path, monkeypatch):
    def write(text):
        path = tmp_path / "client.toml"
        path.write_text(text)
        monkeypatch.setenv("SATWATCH_CLIENT_CONFIG", str(path))
        return path

    return write


def test_the_given_one_goes_before_the_processs_and_that_before_the_environments(monkeypatch):
    monkeypatch.setenv("SATWATCH_RUN", "of-the-environment")
    given, process = FakeClient(), FakeClient()
    assert isinstance(client_for(), Client)
    use(process)
    assert client_for() is process
    assert process_client() is process
    assert client_for(given=given) is given
    use(None)
    assert process_client() is None
    assert isinstance(client_for(), Client)


def test_a_client_that_is_false_is_a_client():
    class Empty(FakeClient):
        def __len__(self):
            return 0

    client = Empty()
    assert client_for(given=client) is client


def test_without_a_run_there_is_none():
    with pytest.raises(ConfigError, match="SATWATCH_RUN"):
        client_for()


def test_the_environments_run_and_address_go_before_the_files_and_the_files_before_the_trainers(monkeypatch, file):
    assert "run='of-the-trainer'" in repr(client_for(run="of-the-trainer"))
    file('run = "of-the-file"\naddress = "127.0.0.1:1111"\n')
    assert "address='127.0.0.1:1111', run='of-the-file'" in repr(client_for(run="of-the-trainer"))
    monkeypatch.setenv("SATWATCH_RUN", "of-the-environment")
    monkeypatch.setenv("SATWATCH_ADDRESS", "127.0.0.1:2222")
    assert "address='127.0.0.1:2222', run='of-the-environment'" in repr(client_for(run="of-the-trainer"))


def test_the_file_sets_the_rule_and_the_trainer_its_radii_and_level(file):
    file('run = "r"\nquantile = 0.8\nexponent = 3\nenabled = false\nmin_reference = 0.01\non_failure = "nominal"\n')
    client = client_for(eps_low=0.1, eps_high=0.3, level="sequence")
    assert client.rule == Rule(
        quantile=0.8, eps_low=0.1, eps_high=0.3, exponent=3, level="sequence", min_reference=0.01, enabled=False
    )
    assert "on_failure='nominal'" in repr(client)


def test_the_environments_client_has_a_floor_under_q():
    assert client_for(run="r").rule == Rule(min_reference=1e-3)


@pytest.mark.parametrize("key", ["rank", "world_size", "scope", "spelled_wrong"])
def test_what_the_file_may_not_set_is_refused(file, key):
    path = file(f'run = "r"\n{key} = 1\n')
    with pytest.raises(ConfigError, match=f"{path}: {key}.*quantile"):
        client_for()


@pytest.mark.parametrize("key", ["eps_low", "eps_high"])
def test_radii_in_the_file_are_refused_as_the_trainers_own(file, key):
    path = file(f'run = "r"\n{key} = 0.1\n')
    with pytest.raises(ConfigError, match=f"{path}: {key}: got a radius, required none: the trainer's own is taken"):
        client_for(eps_low=0.1, eps_high=0.1)


@pytest.mark.parametrize(("line", "came"), [('min_reference = "1e-3"', "'1e-3'"), ('enabled = "no"', "'no'")])
def test_a_wrong_value_in_the_file_is_said_with_the_files_name(file, line, came):
    path = file(f'run = "r"\n{line}\n')
    with pytest.raises(ConfigError, match=f"{path}: {line.partition(' ')[0]}: got {came}, required "):
        client_for()


def test_a_wrong_value_of_the_trainers_is_not_the_files(file):
    path = file('run = "r"\n')
    with pytest.raises(ConfigError) as raised:
        client_for(eps_low=2.0)
    assert str(raised.value).startswith("eps_low: got 2.0")
    assert str(path) not in str(raised.value)


@pytest.mark.parametrize("text", ["run = ", "run"])
def test_a_file_that_is_no_toml_is_refused(file, text):
    file(text)
    with pytest.raises(ConfigError, match="SATWATCH_CLIENT_CONFIG"):
        client_for()


def test_a_file_that_is_not_there_or_no_text_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("SATWATCH_CLIENT_CONFIG", str(tmp_path / "absent.toml"))
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        client_for()
    (tmp_path / "absent.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        client_for()


@pytest.mark.parametrize("value", ["1.5", '"much"'])
def test_a_value_that_is_outside_its_range_is_refused(file, value):
    file(f'run = "r"\nquantile = {value}\n')
    with pytest.raises(ConfigError, match="quantile"):
        client_for()


@pytest.mark.parametrize(
    ("name", "ours", "trainers"), [("eps_low", 0.2, 0.1), ("eps_high", 0.2, 0.28), ("level", "token", "sequence")]
)
def test_a_client_with_another_rule_than_the_trainers_is_refused(name, ours, trainers):
    with pytest.raises(ConfigError, match=f"^{name}: got {ours}, the client's, required {trainers}"):
        client_for(given=FakeClient(), **{name: trainers})
    assert client_for(given=FakeClient(), **{name: ours}).rule == Rule()


def test_a_level_in_the_file_that_is_not_the_trainers_is_refused(file):
    file('run = "r"\nlevel = "token"\n')
    with pytest.raises(ConfigError, match="level"):
        client_for(level="sequence")


@pytest.mark.parametrize(("name", "trainers"), [("rank", 3), ("world_size", 8)])
def test_a_client_that_speaks_for_another_rank_is_refused(name, trainers):
    client = connect(run="r", rank=1, world_size=4)
    with pytest.raises(ConfigError, match=f"^{name}: got {getattr(client, name)}, the client's, required {trainers}"):
        client_for(given=client, **{name: trainers})
    assert client_for(given=client, rank=1, world_size=4) is client
    assert client_for(given=client) is client


def test_the_rank_is_the_trainers_else_torch_distributeds(monkeypatch):
    assert distributed_rank() == (0, 1)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 5)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 8)
    assert distributed_rank() == (5, 8)
    client = client_for(run="r")
    assert (client.rank, client.world_size) == (5, 8)
    client = client_for(run="r", rank=1, world_size=2)
    assert (client.rank, client.world_size) == (1, 2)


def test_a_build_of_torch_without_distributed_is_one_rank(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    assert distributed_rank() == (0, 1)
