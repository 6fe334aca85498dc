"""The page of this hook: its snippet, and its five minutes, as they stand."""

from __future__ import annotations

import functools
import re
import runpy
from pathlib import Path

import pytest
import trl

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/hooks/trl.md").read_text(encoding="utf-8")
SNIPPET, SCRIPT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_snippet_is_short_and_the_trainer_takes_what_it_gives(monkeypatch):
    assert len(SNIPPET.splitlines()) <= 10
    monkeypatch.setattr(trl, "GRPOConfig", functools.partial(trl.GRPOConfig, use_cpu=True, bf16=False))
    given = {}
    program = SNIPPET.replace("SatGRPOTrainer(", "given.update(").replace("trainer.train()", "")
    exec(program, {"given": given, "reward": None, "dataset": None})
    assert set(given) == {"model", "reward_funcs", "args", "train_dataset"}
    assert given["args"].run_name == "my-run" and given["args"].use_vllm


def test_the_five_minutes(sidecar, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SATWATCH_ADDRESS", sidecar.address)
    monkeypatch.delenv("SATWATCH_RUN", raising=False)
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    runpy.run_path("train.py", run_name="__main__")["trainer"].attachment.client.close()
    (shown,) = re.findall(r"```text\n(10 .*?)```", PAGE, re.DOTALL)
    told = [line.split() for line in capsys.readouterr().out.splitlines() if re.match(r"\d+ reward", line)]
    assert len(told) == 6
    # The page shows what came out, give or take what another machine's rounding does to sixty steps.
    for came, said in zip(told, (line.split() for line in shown.splitlines()), strict=True):
        assert [came[0], *came[1::2]] == [said[0], *said[1::2]]
        assert [float(number) for number in came[2::2]] == pytest.approx([float(n) for n in said[2::2]], abs=0.2)
    assert float(told[-1][2]) > 0.8 > 0.4 > float(told[0][2])
    metrics = sidecar.metrics()
    (shown,) = re.findall(r"```text\n(satwatch_.*?)```", PAGE, re.DOTALL)
    for line in shown.splitlines():
        assert line.rsplit(" ", 1)[0] in metrics
    assert metrics['satwatch_batches_total{run="vowels"}'] == 60
    assert metrics['satwatch_version_lag_mean{run="vowels"}'] == 2
    assert metrics['satwatch_client_fallbacks_total{run="vowels"}'] == 0


def test_the_releases_that_the_page_installs_are_those_of_these_tests():
    pins = (ROOT / "tests/trainers/trl/requirements.txt").read_text(encoding="utf-8").split()
    (command,) = re.findall(r"pip install .*", PAGE)
    for pin in re.findall(r"[a-z]+==[0-9.]+", command):
        assert pin in pins
