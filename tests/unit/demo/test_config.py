import pytest

from satwatch.demo import DemoConfig
from satwatch.errors import ConfigError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("objective", "dpo"),
        ("task", "chess"),
        ("lag", -1),
        ("lag", 257),
        ("lag", 1.5),
        ("lag", True),
        ("steps", 0),
        ("steps", 10_000_001),
        ("seed", -1),
        ("seed", 2**32),
        ("prompts", 0),
        ("samples", 1),
        ("microbatches", 0),
        ("microbatches", 3),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("learning_rate", float("inf")),
        ("fault", "fire"),
        ("fault_step", 5),
        ("connect", "here"),
    ],
)
def test_a_setting_outside_its_range_is_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=rf"^{field}: got .*, required "):
        DemoConfig(**{field: value})


@pytest.mark.parametrize("step", [-1, 600, 1.5])
def test_a_fault_begins_at_a_step_of_the_run(step):
    with pytest.raises(ConfigError, match=r"^fault_step: got .*, required a whole number, 0 to 599"):
        DemoConfig(fault="nan", fault_step=step)


@pytest.mark.parametrize(
    ("objective", "level", "adaptive"),
    [("ppo", "token", False), ("sat", "token", True), ("gspo", "sequence", False), ("sat-gspo", "sequence", True)],
)
def test_the_objective_sets_the_level_and_whether_bounds_adapt(objective, level, adaptive):
    config = DemoConfig(objective=objective)
    assert (config.level, config.adaptive) == (level, adaptive)


@pytest.mark.parametrize(("lag", "versions"), [(0, [0, 1, 2, 3, 4]), (2, [0, 0, 0, 1, 2]), (8, [0, 0, 0, 0, 0])])
def test_a_batch_is_generated_exactly_lag_versions_before_it_trains(lag, versions):
    config = DemoConfig(lag=lag)
    assert [config.behavior_version(batch) for batch in range(5)] == versions


def test_the_run_is_named_after_its_settings_unless_it_has_a_name():
    assert DemoConfig(objective="sat-gspo", lag=4, seed=7).run_name == "demo-reverse-sat-gspo-lag4-seed7"
    assert DemoConfig(run="mine", fault="nan").run_name == "mine"
    assert DemoConfig(fault="stale-engine").run_name == "demo-reverse-sat-lag8-seed0-stale-engine"


def test_a_fault_begins_after_a_third_of_the_steps_unless_told():
    assert DemoConfig().first_faulty_batch is None
    assert DemoConfig(fault="nan").first_faulty_batch == 200
    assert DemoConfig(fault="nan", fault_step=0).first_faulty_batch == 0
