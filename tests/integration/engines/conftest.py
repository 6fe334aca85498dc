"""Real engines, shared by all tests of this folder and each left as it was found."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager

import pytest

from tests.integration.engines.proxy import standing_before
from tests.integration.engines.scoring import Scorer
from tests.integration.engines.server import Server
from tests.integration.engines.watch import watching_engines

API_KEY = "planted-api-key-5e1f"
ADMIN_KEY = "planted-admin-key-9c2d"


@contextmanager
def started(*servers):
    """Start servers beside each other, and end them."""
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.end()
        for server in servers:
            server.stop()


@pytest.fixture(scope="session")
def fleet(tmp_path_factory):
    """Three engines: an open one, one behind keys, and one with experts."""
    logs = tmp_path_factory.mktemp("engines")
    plain = Server("qwen3", logs / "plain.log")
    keyed = Server("qwen3", logs / "keyed.log", api_key=API_KEY, admin_key=ADMIN_KEY)
    experts = Server("moe", logs / "experts.log", ("--enable-return-routed-experts",))
    with started(plain, keyed, experts):
        yield {"plain": plain, "keyed": keyed, "experts": experts}


@pytest.fixture(scope="session")
def scorer():
    """The trainer's side."""
    scorer = Scorer()
    yield scorer
    scorer.close()


def fresh(server):
    """Bring an engine back to where every test begins: version 0, at work, its cache empty."""
    server.go_on()
    server.load(0)
    return server


@pytest.fixture
def plain(fleet):
    """An engine that takes any request, at version 0."""
    yield fresh(fleet["plain"])
    fresh(fleet["plain"])


@pytest.fixture
def keyed(fleet):
    """An engine behind an api key and an admin key, at version 0."""
    yield fresh(fleet["keyed"])
    fresh(fleet["keyed"])


@pytest.fixture
def experts(fleet):
    """A mixture of experts that reports its routes, at version 0."""
    yield fresh(fleet["experts"])
    fresh(fleet["experts"])


@pytest.fixture
def keys(tmp_path):
    """Files with the keys."""
    files = {"api_key_file": tmp_path / "api.key", "admin_key_file": tmp_path / "admin.key"}
    for file, key in zip(files.values(), (API_KEY, ADMIN_KEY), strict=True):
        file.write_text(f"{key}\n")
        os.chmod(file, 0o600)
    return files


@pytest.fixture
def watch(scorer, request):
    """Starts sidecars with a probe on engines given by URL, each for a run of its own."""
    with ExitStack() as stack:

        def start(*urls, **probe):
            run = probe.pop("run", request.node.name[:60])
            return stack.enter_context(watching_engines(scorer, urls, run, **probe))

        yield start


@pytest.fixture
def before():
    """Starts stand-ins in front of engines."""
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(standing_before(server.url))
