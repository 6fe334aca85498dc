"""How the hook gets into verl: in processes of their own, which have imported nothing yet."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from satwatch.hooks.verl.when_imported import when_imported

ROOT = Path(__file__).resolve().parent.parent.parent.parent

LOOK = """
import json, sys
{first}
loaded = "satwatch.hooks.verl" in sys.modules
early = [name for name in sys.modules if name.startswith("verl.trainer")]
from verl.trainer.ppo import core_algos
from verl.workers.utils import losses
from verl.workers import engine_workers
worker = engine_workers.ActorRolloutRefWorker.update_weights
functions = {{
    "sat": core_algos.POLICY_LOSS_REGISTRY.get("sat"),
    "bypass_mode": core_algos.get_policy_loss_fn("bypass_mode"),
    "vanilla": core_algos.get_policy_loss_fn("vanilla"),
    "ppo_loss": losses.ppo_loss,
    "used": engine_workers.ppo_loss,
    "update_weights": worker,
}}
files = {{name: function.__code__.co_filename for name, function in functions.items() if function}}
where = {{name: "satwatch" if "satwatch" in file else "verl" for name, file in files.items()}}
print(json.dumps({{"loaded": loaded, "early": early, "where": where}}))
"""


def look(first="import verl", path=(), **environment):
    """Import verl in a process of its own, and return who has written its functions, and what was said."""
    ours = ("SATWATCH_", "VERL_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    process = subprocess.run(
        [sys.executable, "-c", LOOK.format(first=first)],
        env={**inherited, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "satwatch" not in process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.fixture
def distribution(tmp_path):
    """A folder that names satwatch's entry points, as pip's installation does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    folder = tmp_path / "satwatch-0.0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: satwatch\nVersion: 0.0.0\n")
    (folder / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


STOCK = {"bypass_mode": "verl", "vanilla": "verl", "ppo_loss": "verl", "used": "verl", "update_weights": "verl"}
WRAPPED = {
    "bypass_mode": "satwatch",
    "vanilla": "verl",
    "ppo_loss": "satwatch",
    "used": "satwatch",
    "update_weights": "satwatch",
}


def test_verl_loads_the_plugin_and_where_nobody_asked_nothing_else_changes(distribution):
    found = look(path=[distribution])
    assert found["where"] == {"sat": "satwatch"} | STOCK
    # It imports nothing of verl's: what a process does not need stays away.
    assert found["loaded"] and not found["early"]


@pytest.mark.parametrize("variable", ["SATWATCH_RUN", "SATWATCH_CLIENT_CONFIG"])
def test_where_the_environment_asks_the_hook_is_in_place(distribution, variable):
    assert look(path=[distribution], **{variable: "x"})["where"] == {"sat": "satwatch"} | WRAPPED


@pytest.mark.parametrize(
    "first",
    [
        "from verl.trainer.ppo import core_algos",
        "from verl.workers import engine_workers",
        "import satwatch.hooks.verl",
    ],
)
def test_whatever_is_imported_first(distribution, first):
    assert look(first, path=[distribution], SATWATCH_RUN="x")["where"] == {"sat": "satwatch"} | WRAPPED


@pytest.mark.parametrize(
    ("variable", "loaded"), [({}, False), ({"VERL_USE_EXTERNAL_MODULES": "satwatch.hooks.verl"}, True)]
)
def test_verls_own_variable_alone_loads_it_where_plugins_are_off(variable, loaded):
    """An installed satwatch is a plugin: without this policy it is loaded whatever the variable says."""
    found = look(VERL_USE_EXTERNAL_PLUGINS="none", SATWATCH_RUN="x", **variable)
    assert found["loaded"] is loaded
    assert found["where"] == ({"sat": "satwatch"} | WRAPPED if loaded else STOCK)


def test_verls_attributes_of_a_method_survive(installed):
    import inspect

    from verl.single_controller.base.decorator import MAGIC_ATTR
    from verl.workers.engine_workers import ActorRolloutRefWorker

    method = ActorRolloutRefWorker.update_weights
    assert "satwatch" in method.__code__.co_filename
    # A Ray actor is asynchronous or not, by this.
    assert inspect.iscoroutinefunction(method)
    assert getattr(method, MAGIC_ATTR)["blocking"] is False


def test_the_loss_can_be_pickled(installed):
    import pickle
    from functools import partial

    from tests.trainers.verl.microbatches import actor_config

    config = actor_config()
    again = pickle.loads(pickle.dumps(partial(installed.ppo_loss, config=config)))
    assert again.func is installed.ppo_loss
    assert again.keywords["config"].policy_loss.loss_mode == "sat"


class TestWhenImported:
    @pytest.fixture
    def module(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "late_module.py").write_text(
            textwrap.dedent("""
            VALUE = 1
            DOUBLE = VALUE * 2
            """)
        )
        yield "late_module"
        sys.modules.pop("late_module", None)

    def test_it_is_done_once_the_modules_own_code_has_run(self, module):
        seen = []
        when_imported(module, lambda found: seen.append(found.DOUBLE))
        when_imported(module, lambda found: setattr(found, "VALUE", 7))
        assert seen == []
        import late_module

        assert seen == [2] and late_module.VALUE == 7
        when_imported(module, lambda found: seen.append(found.VALUE))
        assert seen == [2, 7]

    def test_what_it_raises_ends_no_import(self, module, caplog):
        def fail(found):
            return found.no_such_loss

        with caplog.at_level(logging.WARNING, "satwatch"):
            when_imported(module, fail)
            import late_module
        assert late_module.VALUE == 1
        assert "late_module" in caplog.text and "no_such_loss" in caplog.text

    def test_looking_for_a_module_is_not_importing_it(self, module):
        seen = []
        when_imported(module, lambda found: seen.append(found.DOUBLE))
        assert importlib.util.find_spec(module) is not None
        when_imported(module, lambda found: seen.append(found.VALUE))
        assert seen == []
        importlib.import_module(module)
        assert seen == [2, 1]
        importlib.reload(sys.modules[module])
        assert seen == [2, 1]

    def test_an_import_that_fails_is_waited_for_again(self, module, tmp_path):
        seen, text = [], (tmp_path / "late_module.py").read_text()
        (tmp_path / "late_module.py").write_text("raise ImportError('not yet')")
        when_imported(module, lambda found: seen.append(found.DOUBLE))
        with pytest.raises(ImportError, match="not yet"):
            importlib.import_module(module)
        assert seen == []
        (tmp_path / "late_module.py").write_text(text)
        importlib.invalidate_caches()
        importlib.import_module(module)
        assert seen == [2]

    def test_a_module_that_is_not_there_stays_so(self):
        when_imported("no_such_module_of_verl", lambda found: None)
        with pytest.raises(ModuleNotFoundError):
            import no_such_module_of_verl  # noqa: F401


def test_ray_hands_the_environment_to_its_workers(distribution):
    """verl's workers are Ray actors: what the driver's shell exports reaches them, as the documentation says."""
    script = """
    import ray
    ray.init(num_cpus=1, include_dashboard=False, logging_level="error")

    @ray.remote
    def look():
        import verl
        from verl.trainer.ppo import core_algos
        from verl.workers.utils import losses
        return "sat" in core_algos.POLICY_LOSS_REGISTRY, "satwatch" in losses.ppo_loss.__code__.co_filename

    print(ray.get(look.remote()))
    """
    environment = {**os.environ, "PYTHONPATH": f"{distribution}{os.pathsep}{ROOT}", "SATWATCH_RUN": "x"}
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines()[-1] == "(True, True)"
