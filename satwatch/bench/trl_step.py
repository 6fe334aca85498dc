"""What the TRL hook costs a real step of TRL: ``python -m satwatch.bench.trl_step ADDRESS [--quick]``.

Runs in an environment that has TRL, beside a sidecar at ADDRESS, and prints one JSON object. TRL's own GRPOTrainer and
SatGRPOTrainer take turns, step by step, in one process, with equal models and the same rollouts. Rollouts are made
beforehand: a step is forward pass, loss, backward pass and optimizer, and no generation.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Final, TextIO

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from satwatch.bench.hook import DEADLINE, unanswered
from satwatch.bench.timing import Timing
from satwatch.client import BoundsClient, FakeClient, connect
from satwatch.hooks.core.attachment import Attachment
from satwatch.hooks.core.radii import ClipRadii
from satwatch.hooks.core.settings import MIN_REFERENCE
from satwatch.hooks.trl import SatGRPOTrainer
from satwatch.types import Rule

VOCABULARY: Final = 512
PROMPT_TOKENS: Final = 16
MICROBATCHES: Final = 2
ROLLOUTS: Final = 4
WARM_UPS: Final = 2
# Between trainer and engine, nats: enough for a tail, as a lagging run has.
MISMATCH: Final = 0.05


@dataclass(frozen=True, slots=True)
class Size:
    """How large a step is.

    Attributes:
        hidden: width of the model, of 4 layers.
        rows: completions a microbatch.
        tokens: tokens of each completion.
        pairs: steps of each trainer that count.
    """

    hidden: int
    rows: int
    tokens: int
    pairs: int


FULL: Final = Size(hidden=256, rows=8, tokens=128, pairs=40)
QUICK: Final = Size(hidden=32, rows=4, tokens=16, pairs=3)


class Turns:
    """Lets trainers, each in a thread of its own, step one at a time; the first of a round is another one each time."""

    def __init__(self, trainers: int) -> None:
        """Let number 0 begin."""
        self.seconds: list[list[float]] = [[] for _ in range(trainers)]
        self._changed = threading.Condition()
        self._left: list[int] = []
        self.rounds = 0
        self._gone = False
        self._next_round()

    def _next_round(self) -> None:
        order = list(range(len(self.seconds)))
        self._left = order if self.rounds % 2 == 0 else order[::-1]
        self.rounds += 1

    def begin(self, trainer: int) -> float:
        """Wait for a trainer's turn, and return the clock's reading then."""
        with self._changed:
            self._changed.wait_for(lambda: self._gone or self._left[0] == trainer)
        return time.perf_counter()

    def end(self, trainer: int, began: float) -> None:
        """End its turn."""
        took = time.perf_counter() - began
        with self._changed:
            self.seconds[trainer].append(took)
            self._left.pop(0)
            if not self._left:
                self._next_round()
            self._changed.notify_all()

    def leave(self) -> None:
        """Let all go on: one of them has failed."""
        with self._changed:
            self._gone = True
            self._changed.notify_all()


class Turn(TrainerCallback):  # type: ignore[misc] # transformers' types are not there where this is checked
    """Makes one trainer take its turns."""

    def __init__(self, turns: Turns, trainer: int) -> None:
        """Say whose."""
        self._turns, self._trainer, self._began = turns, trainer, 0.0

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - transformers'
        """Wait; then what is drawn in a step is what the other trainer draws in it."""
        self._began = self._turns.begin(self._trainer)
        torch.manual_seed(self._turns.rounds)

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - transformers'
        """Hand over."""
        self._turns.end(self._trainer, self._began)


@dataclass(slots=True)
class Stopwatch:
    """Seconds that the hook spends on asking for bounds and waiting for them, by the thread of the trainer.

    What else it does in a loss, a few operations on tensors of the microbatch's size, is in the step alone.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time what the hook does for a loss: ask, and look for the first time."""
        asked, looked = Attachment.ask, ClipRadii._first_look
        setattr(Attachment, "ask", self._timed(asked, begins=True))  # noqa: B010 - mypy: a method is no variable
        setattr(ClipRadii, "_first_look", self._timed(looked, begins=False))  # noqa: B010 - as above
        try:
            yield
        finally:
            setattr(Attachment, "ask", asked)  # noqa: B010 - as above
            setattr(ClipRadii, "_first_look", looked)  # noqa: B010 - as above

    def _timed(self, function: Callable[..., Any], *, begins: bool) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the function's
            mine = self.seconds.setdefault(threading.current_thread().name, [])
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - began
                if begins:
                    mine.append(took)
                else:
                    mine[-1] += took

        return timed


class Rollouts:
    """Rollouts made beforehand, the same for every trainer: TRL's ``rollout_func``."""

    def __init__(self, policy: LlamaForCausalLM, size: Size) -> None:
        """Draw tokens, and their log-probs as an engine might have said them."""
        generator = np.random.default_rng(0)
        rows = size.rows * MICROBATCHES
        self._made = []
        for _ in range(ROLLOUTS):
            ids = torch.from_numpy(generator.integers(2, VOCABULARY, size=(rows, PROMPT_TOKENS + size.tokens)))
            with torch.no_grad():
                scores = policy(input_ids=ids).logits[:, PROMPT_TOKENS - 1 : -1].log_softmax(-1)
            logprob = scores.gather(2, ids[:, PROMPT_TOKENS:, None]).squeeze(2)
            noise = torch.from_numpy(generator.standard_t(3, size=tuple(logprob.shape))).float()
            self._made.append((ids.tolist(), (logprob - MISMATCH * noise).tolist()))

    def for_one(self) -> Callable[[list[Any], Any], dict[str, Any]]:
        """Return the function for one trainer, which goes through them from the start."""
        calls = iter(range(10**9))

        def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:  # noqa: ANN401 - TRL's
            ids, logprobs = self._made[next(calls) % len(self._made)]
            return {
                "prompt_ids": [row[:PROMPT_TOKENS] for row in ids],
                "completion_ids": [row[PROMPT_TOKENS:] for row in ids],
                "logprobs": logprobs,
            }

        return rollout


def tokenizer() -> PreTrainedTokenizerFast:
    """Return one of made-up words."""
    words = {"<pad>": 0, "</s>": 1} | {f"w{i}": i for i in range(2, VOCABULARY)}
    made = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", padding_side="left")


def policy(size: Size) -> LlamaForCausalLM:
    """Return a random Llama, the same one each time."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=size.hidden,
            intermediate_size=3 * size.hidden,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=PROMPT_TOKENS + size.tokens,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=1,
        )
    )


def reward(completions: list[str], **_: Any) -> list[float]:  # noqa: ANN401 - TRL's
    """Reward the share of even words: spread enough for advantages."""
    return [sum(int(word[1:]) % 2 == 0 for word in text.split() if word[1:].isdigit()) / 10 for text in completions]


class Bench:
    """Trainers of one size that take turns."""

    def __init__(self, size: Size) -> None:
        """Make the rollouts."""
        self.size = size
        self._rollouts = Rollouts(policy(size), size)
        self._folder = tempfile.mkdtemp()

    def run(self, clients: dict[str, BoundsClient | None], steps: int) -> tuple[dict[str, Any], Turns, Stopwatch]:
        """Train one trainer a client, step by step in turns; None: TRL's own.

        Returns:
            The trainers by name, their steps' seconds in the same order, and the hook's, by name.
        """
        turns, watch, failures = Turns(len(clients)), Stopwatch(), []
        trainers = {name: self._trainer(client, steps) for name, client in clients.items()}
        for number, trainer in enumerate(trainers.values()):
            trainer.add_callback(Turn(turns, number))

        def train(trainer: Any) -> None:  # noqa: ANN401 - TRL's
            torch.set_num_threads(1)
            try:
                trainer.train()
            except BaseException as error:  # noqa: BLE001 - raised again below, when the other threads are done
                failures.append(error)
                turns.leave()

        threads = [threading.Thread(target=train, args=(one,), name=name) for name, one in trainers.items()]
        with watch.running():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
        return trainers, turns, watch

    def _trainer(self, client: BoundsClient | None, steps: int) -> Any:  # noqa: ANN401 - TRL's
        size, rows = self.size, self.size.rows * MICROBATCHES
        args = GRPOConfig(
            output_dir=self._folder,
            per_device_train_batch_size=size.rows,
            gradient_accumulation_steps=MICROBATCHES,
            num_generations=size.rows,
            max_completion_length=size.tokens,
            max_steps=steps,
            learning_rate=1e-5,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            disable_tqdm=True,
            beta=0.0,
        )
        given: dict[str, Any] = {
            "model": policy(size),
            "reward_funcs": reward,
            "args": args,
            "train_dataset": Dataset.from_dict({"prompt": ["w2 w3"] * rows * 4}),
            "processing_class": tokenizer(),
            "rollout_func": self._rollouts.for_one(),
        }
        return GRPOTrainer(**given) if client is None else SatGRPOTrainer(satwatch=client, **given)


def measure_share(bench: Bench, address: str) -> dict[str, Any]:
    """Measure the hook's share of a step, a sidecar answering."""
    with connect(address, run="bench-trl", timeout=10.0, min_reference=MIN_REFERENCE) as client:
        trainers, turns, watch = bench.run({"stock": None, "hooked": client}, WARM_UPS + bench.size.pairs)
        fallbacks = client.stats.bounds_from_fallback
    stock, hooked = (np.array(seconds[WARM_UPS:]) for seconds in turns.seconds)
    shares = np.quantile((hooked - stock) / stock, [0.25, 0.5, 0.75]).tolist()
    in_hook = np.array(watch.seconds["hooked"]).reshape(-1, MICROBATCHES).sum(1)[WARM_UPS:]
    model = trainers["stock"].model
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "microbatches": MICROBATCHES,
        "rows": bench.size.rows,
        "tokens": bench.size.tokens,
        "stock": asdict(Timing.of(stock.tolist())),
        "hooked": asdict(Timing.of(hooked.tolist())),
        "share": shares[1],
        "share_quartiles": [shares[0], shares[2]],
        "hook_seconds": float(np.median(in_hook)),
        "hook_share": float(np.median(in_hook / hooked)),
        "fallbacks": fallbacks,
    }


def measure_dead(bench: Bench, pairs: int) -> dict[str, Any]:
    """Measure the hook while something that never answers stands where the sidecar was."""
    here = FakeClient(rule=Rule(min_reference=MIN_REFERENCE))
    with (
        unanswered(listens=True) as address,
        connect(address, run="bench", timeout=DEADLINE, min_reference=MIN_REFERENCE) as dead,
    ):
        trainers, _, watch = bench.run({"dead": dead, "local": here}, WARM_UPS + pairs)
    losses = {name: [row["loss"] for row in one.state.log_history if "loss" in row] for name, one in trainers.items()}
    first = watch.seconds["dead"][0]
    calls = {name: seconds[MICROBATCHES:] for name, seconds in watch.seconds.items()}
    medians = {name: float(np.median(seconds)) for name, seconds in calls.items()}
    weights = [torch.nn.utils.parameters_to_vector(one.model.parameters()) for one in trainers.values()]
    return {
        "deadline": DEADLINE,
        "steps": len(losses["dead"]),
        "equal": losses["dead"] == losses["local"] and torch.equal(*weights),
        "first_call_seconds": first,
        "call_seconds": medians["dead"],
        "local_seconds": medians["local"],
        "overhead_seconds": medians["dead"] - medians["local"],
    }


def main(arguments: list[str], output: TextIO) -> None:
    """Measure, and print one JSON object."""
    logging.getLogger("satwatch").addHandler(logging.NullHandler())
    torch.set_num_threads(1)
    size = QUICK if "--quick" in arguments else FULL
    bench = Bench(size)
    result = {"versions": {name: version(name) for name in ("trl", "transformers", "torch")}}
    result |= measure_share(bench, arguments[0]) | {"dead": measure_dead(bench, max(2, size.pairs // 8))}
    output.write(json.dumps(result, allow_nan=False) + "\n")


if __name__ == "__main__":
    # The trainers print what they log.
    with open(os.dup(sys.stdout.fileno()), "w") as standard_output:
        sys.stdout = sys.stderr
        main(sys.argv[1:], standard_output)
