"""Addresses: what they look like, to whoever listens there and to whoever asks."""

from __future__ import annotations

import pytest

from satwatch.addresses import check_address, is_loopback, listening_requirement, split_address
from satwatch.errors import ConfigError


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:4820", "localhost:1", "sidecar-0.jobs.svc:65535", "[::1]:4820", "unix:/run/s.sock", "unix:s.sock"],
)
def test_addresses_that_are_taken(address):
    check_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        "localhost:",
        ":4820",
        "localhost:0",
        "localhost:65536",
        "localhost:port",
        "a b:1",
        "::1:4820",
        "http://localhost:4820",
        "dns:///localhost:4820",
        "unix:",
        "unix:" + "x" * 108,
        "unix:a\0b",
        "unix:\udcff",
        4820,
        None,
    ],
)
def test_addresses_that_are_refused_by_name(address):
    with pytest.raises(ConfigError, match=r"^address: got .*required (HOST:PORT|unix:PATH)"):
        check_address(address)


def test_a_refusal_names_what_the_address_came_as():
    with pytest.raises(ConfigError, match=r"^SATWATCH_ADDRESS: got 'here', required HOST:PORT or unix:PATH$"):
        check_address("here", "SATWATCH_ADDRESS")


@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "127.8.0.1:65535", "[::1]:4820", "localhost:1", "unix:x", "unix:/a b"]
)
def test_addresses_that_can_be_listened_on(address):
    assert listening_requirement(address) is None


@pytest.mark.parametrize(
    ("address", "requirement"),
    [
        ("", "HOST:PORT with a port"),
        (":4820", "HOST:PORT with a port"),
        ("::1:4820", "HOST:PORT with a port"),
        ("127.0.0.1:65536", "HOST:PORT with a port"),
        ("127.0.0.1:-1", "HOST:PORT with a port"),
        ("http://127.0.0.1:1", "HOST:PORT with a port"),
        ("10.0.0.1:1", "a loopback host"),
        ("[::]:1", "a loopback host"),
        ("example.org:1", "a loopback host"),
        ("unix:" + "x" * 101, "unix:PATH with a path of 1 to 100 bytes"),
        ("unix:a\0b", "unix:PATH with a path of 1 to 100 bytes"),
    ],
)
def test_addresses_that_can_not(address, requirement):
    assert listening_requirement(address).startswith(requirement)


def test_split_address_strips_brackets():
    assert split_address("[::1]:80") == ("::1", 80)


def test_loopback_is_not_resolved():
    assert [is_loopback(host) for host in ("localhost", "::1", "127.1.2.3", "0.0.0.0", "localhost.example")] == [
        True,
        True,
        True,
        False,
        False,
    ]
