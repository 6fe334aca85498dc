"""The trainer's side in its own process: transformers, in the engines' environment."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from tests.integration.engines.server import DTYPES, ENVIRONMENT, PYTHON, ROOT, model


class Scorer:
    """Scores token sequences with a model's weights; one process, which keeps the models it has loaded."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [str(PYTHON), str(ROOT / "tests/engines/sglang/score.py")],
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._scored: dict[str, Any] = {}

    def score(self, kind: str, version: int, sequences: Any) -> Any:
        """Return the answer of tests/engines/sglang/score.py."""
        asked = {"model": model(kind, version), "dtype": DTYPES[kind]}
        line = json.dumps({**asked, "sequences": [list(sequence) for sequence in sequences]})
        if line not in self._scored:
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()
            self._scored[line] = json.loads(self._popen.stdout.readline())
        return self._scored[line]

    def logprobs(self, version: int, sequences: Any) -> list[list[float]]:
        """Return log pi of every token but each sequence's first, nats."""
        scored: list[list[float]] = self.score("qwen3", version, sequences)["logprobs"]
        return scored

    def close(self) -> None:
        """End the process."""
        self._popen.stdin.close()
        self._popen.stdout.close()
        self._popen.wait(timeout=60)
