"""The README's first screen: its trainer trains, against a real sidecar, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.trainers.trl import tiny

ROOT = Path(__file__).resolve().parents[3]
HOOK = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]


def test_the_hook_runs_as_it_stands(sidecar, tmp_path):
    tiny.model().save_pretrained(tmp_path)
    tiny.TOKENIZER.save_pretrained(tmp_path)
    code = HOOK.replace("127.0.0.1:4820", sidecar.address)
    assert sidecar.address in code
    # Two passes over each batch: without an engine, the second pass is what differs from the first.
    given = {"model": str(tmp_path), "args": tiny.config(num_iterations=2, max_steps=4)}
    names = {**given, "dataset": tiny.prompts(), "reward": tiny.vowels}
    exec(code, names)
    with names["client"] as client:
        assert client.stats.bounds_from_sidecar == 4
    assert sidecar.metrics()['satwatch_batches_total{run="my-run"}'] == 4
    assert max(tiny.logged(names["trainer"], "satwatch/log_ratio_abs_mean")) > 0
