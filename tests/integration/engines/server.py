"""Real SGLang servers: started in groups of processes of their own, ready when they say so, ended to the last child."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-engines/sglang/bin/python"
MODELS = ROOT / ".venv-engines/models"
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "SGLANG_USE_CPU_ENGINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
ARGUMENTS = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--host", "127.0.0.1", "--enable-metrics"),
    *("--sleep-on-idle", "--max-total-tokens", "8192", "--max-running-requests", "8", "--context-length", "2048"),
)
# Experts are chosen by comparing numbers: in bfloat16 two kernels part on near ties, and equal weights show nothing.
DTYPES = {"qwen3": "bfloat16", "moe": "float32"}
START_SECONDS = 240.0


class NotReadyError(Exception):
    """A server did not come up; the end of its log says why."""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def model(kind: str, version: int) -> str:
    """Return the folder of a model."""
    return str(MODELS / f"{kind}-v{version}")


@dataclass
class Server:
    """One server: what starts it, and what a trainer asks of it."""

    kind: str
    log: Path
    arguments: tuple[str, ...] = ()
    api_key: str | None = None
    admin_key: str | None = None
    port: int = field(default_factory=free_port)
    popen: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address, which a restart keeps."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        """What the probe calls it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, without waiting."""
        keys = [("--api-key", self.api_key), ("--admin-api-key", self.admin_key)]
        given = [part for flag, key in keys if key for part in (flag, key)]
        place = ["--model-path", model(self.kind, 0), "--port", str(self.port), "--dtype", DTYPES[self.kind]]
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [str(PYTHON), "-m", "sglang.launch_server", *place, *ARGUMENTS, *self.arguments, *given],
                env={**os.environ, **ENVIRONMENT},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its children are ended with it
            )

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Return when it takes requests.

        Raises:
            NotReadyError: it ended or was not ready in time; with the end of its log.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.popen is None or self.popen.poll() is not None:
                break
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/ready", timeout=5, trust_env=False).status_code == 200:
                    return
            time.sleep(0.5)
        raise NotReadyError(self.log.read_text(errors="replace")[-4000:])

    def kill(self) -> None:
        """End the whole group at once, as a machine does that loses power."""
        if self.popen is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait(timeout=60)

    def end(self) -> None:
        """Ask it to end, without waiting."""
        if self.popen is not None and self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGTERM)

    def stop(self, seconds: float = 10.0) -> None:
        """Wait until it has ended, and end what is left of its group."""
        if self.popen is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(timeout=seconds)
        self.kill()

    def ask(
        self, method: str, path: str, *, admin: bool = False, timeout: float = 120.0, **given: Any
    ) -> httpx.Response:
        """Send one request with the key that it takes."""
        key = self.admin_key if admin and self.admin_key else self.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.request(method, self.url + path, headers=headers, timeout=timeout, trust_env=False, **given)

    def post(self, path: str, **body: Any) -> Any:
        """Send what a trainer sends to change an engine, and return the answer."""
        answer = self.ask("POST", path, admin=True, json=body)
        answer.raise_for_status()
        return answer.json() if answer.headers.get("content-type", "").startswith("application/json") else None

    def load(self, version: int, **given: Any) -> Any:
        """Update the weights from disk, named as their version."""
        body = {"model_path": model(self.kind, version), "weight_version": str(version), **given}
        return self.post("/update_weights_from_disk", **body)

    def relabel(self, version: int | str) -> None:
        """Name the weights without loading any."""
        self.post("/update_weight_version", new_version=str(version), abort_all_requests=False)

    def pause(self, mode: str = "in_place") -> None:
        """Pause it."""
        self.post("/pause_generation", mode=mode)

    def go_on(self) -> None:
        """End a pause."""
        self.post("/continue_generation")

    def generate(self, tokens: Any, *, new_tokens: int = 8, **given: Any) -> Any:
        """Generate, and return the answer."""
        sampling = {"max_new_tokens": new_tokens, "temperature": 1.0, "ignore_eos": True}
        answer = self.ask("POST", "/generate", json={"input_ids": tokens, "sampling_params": sampling, **given})
        answer.raise_for_status()
        return answer.json()
