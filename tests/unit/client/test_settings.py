from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import satwatch
from satwatch.errors import ConfigError
from satwatch.types import Rule


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    monkeypatch.delenv("SATWATCH_ADDRESS", raising=False)
    monkeypatch.delenv("SATWATCH_RUN", raising=False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quantile", 1.0),
        ("quantile", "0.9"),
        ("eps_low", 0),
        ("eps_high", 1.5),
        ("exponent", 0),
        ("level", "tokens"),
        ("scope", "run"),
        ("min_reference", -1),
        ("enabled", "yes"),
        ("on_failure", "panic"),
        ("timeout", 0),
        ("timeout", math.inf),
        ("timeout", 3600.1),
        ("timeout", math.nan),
        ("timeout", "1"),
        ("timeout", 10**400),
        ("timeout", True),
        ("quantile", 10**400),
        ("exponent", 10**400),
        ("rank", np.int64(1)),
        ("rank", np.float32(0)),
        ("world_size", 10**400),
        ("rank", 1),
        ("rank", -1),
        ("rank", "0"),
        ("world_size", 0),
        ("world_size", True),
        ("world_size", 2**32),
        ("run", ""),
        ("run", "a\nb"),
        ("run", "x" * 201),
        ("run", 7),
        ("incarnation", "x" * 201),
        ("incarnation", 3),
        ("address", "nowhere"),
    ],
)
def test_every_argument_is_checked_by_connect_itself(field, value):
    with pytest.raises(ConfigError, match=f"^{field}: got "):
        satwatch.connect(**{"run": "r", field: value})


def test_the_environment_gives_what_no_argument_does(monkeypatch):
    monkeypatch.setenv("SATWATCH_ADDRESS", "10.0.0.7:1234")
    monkeypatch.setenv("SATWATCH_RUN", "from-environment")
    assert "address='10.0.0.7:1234', run='from-environment'" in repr(satwatch.connect())
    assert "address='[::1]:1', run='own'" in repr(satwatch.connect("[::1]:1", run="own"))


def test_without_an_address_it_is_the_default():
    assert "address='127.0.0.1:4820'" in repr(satwatch.connect(run="r"))


def test_without_a_run_there_is_no_client():
    with pytest.raises(ConfigError, match=r"^run: got None, required a name, as an argument or in SATWATCH_RUN"):
        satwatch.connect()


def test_an_address_in_the_environment_is_checked_too(monkeypatch):
    monkeypatch.setenv("SATWATCH_ADDRESS", "http://localhost:4820")
    with pytest.raises(ConfigError, match=r"^address: "):
        satwatch.connect(run="r")


def test_connect_passes_the_rule_on():
    client = satwatch.connect(
        run="r", quantile=0.8, eps_low=0.1, eps_high=0.3, exponent=3, level="sequence", scope="step", min_reference=1e-3
    )
    assert client.rule == Rule(0.8, 0.1, 0.3, 3, "sequence", "step", 1e-3, True)


def test_a_numpy_scalar_is_the_number_that_it_is():
    client = satwatch.connect(
        run="r",
        rank=np.int64(1),
        world_size=np.uint8(2),
        quantile=np.float64(0.8),
        eps_low=np.float32(0.25),
        exponent=np.int32(3),
        min_reference=np.float16(0.5),
        timeout=np.float32(2.5),
    )
    assert client.rule == Rule(0.8, 0.25, 0.2, 3.0, min_reference=0.5)
    assert "rank=1, world_size=2," in repr(client)
    copy = pickle.loads(pickle.dumps(client))
    for each in (client, copy):
        settings = each._settings
        given = (settings.opening.rank, settings.opening.world_size, settings.timeout, each.rule.eps_low)
        assert [type(value) for value in given] == [int, int, float, float]


def test_a_pickled_client_is_its_configuration():
    client = satwatch.connect(
        "unix:/s", run="r", rank=1, world_size=2, incarnation="i", eps_low=0.1, on_failure="nominal"
    )
    copy = pickle.loads(pickle.dumps(client))
    assert repr(copy) == repr(client)
    assert copy.rule == client.rule
    assert copy is not client
