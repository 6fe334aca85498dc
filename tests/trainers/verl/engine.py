"""verl's own actor worker and FSDP engine, training a tiny Llama on a CPU: one rank, as a program.

``python engine.py '{"rank": 0, ...}'`` prints one JSON line: the metrics of each step as verl's driver gets them, the
weights at the end as a digest, and what the steps took. The rollouts are made up and depend on seed, step and rank
alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
from functools import partial
from types import SimpleNamespace

os.environ |= {"VERL_ENGINE_DEVICE": "cuda", "VERL_PLATFORM": "cpu", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
ARGUMENTS = {
    "rank": 0,
    "world_size": 1,
    "store": "",  # a file for torch.distributed to meet at
    "loss_mode": "sat",
    "correction": {"rollout_is": None},
    "steps": 3,
    "rows": 8,  # of a rank, in a step
    "minibatches": 2,
    "width": 6,
    "noise": 0.2,  # of log mu
    "recomputed": False,  # whether old_log_probs are the trainer's own
    "versions": True,
} | json.loads(sys.argv[1])
os.environ |= {"RANK": str(ARGUMENTS["rank"]), "WORLD_SIZE": str(ARGUMENTS["world_size"]), "LOCAL_RANK": "0"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # which verl reads and nobody uses
MICROBATCH = 2
PROMPT = 4

import numpy as np  # noqa: E402
import torch  # noqa: E402
import verl  # noqa: E402, F401 - loads what VERL_USE_EXTERNAL_MODULES names
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.trainer.config import CheckpointConfig, RolloutCorrectionConfig  # noqa: E402
from verl.utils import tensordict_utils as tu  # noqa: E402
from verl.utils.metric import reduce_metrics  # noqa: E402
from verl.workers import engine_workers  # noqa: E402
from verl.workers.config import (  # noqa: E402
    FSDPActorConfig,
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
    TrainingWorkerConfig,
)
from verl.workers.config.actor import PolicyLossConfig  # noqa: E402
from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding  # noqa: E402

logging.getLogger("verl").setLevel(logging.ERROR)


def make_worker(arguments, folder):
    torch.manual_seed(0)
    llama = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=32, num_key_value_heads=2, **llama)).save_pretrained(folder)
    engine = FSDPEngineConfig(
        strategy="fsdp2",
        dtype="float32",
        use_torch_compile=False,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=MICROBATCH,
        infer_micro_batch_size_per_gpu=MICROBATCH,
    )
    worker = engine_workers.TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=HFModelConfig(
                path=folder,
                load_tokenizer=False,
                use_remove_padding=False,
                override_config={"attn_implementation": "eager"},
                enable_gradient_checkpointing=False,
            ),
            engine_config=engine,
            optimizer_config=FSDPOptimizerConfig(lr=3e-3),
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    config = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=MICROBATCH,
        use_kl_loss=False,
        policy_loss=PolicyLossConfig(
            loss_mode=arguments["loss_mode"], rollout_correction=RolloutCorrectionConfig(**arguments["correction"])
        ),
    )
    # As verl's ActorRolloutRefWorker does it, from the module's own name.
    worker.set_loss_fn(partial(engine_workers.ppo_loss, config=config))
    return worker


def make_batch(arguments, step):
    """Return a step's trajectories as verl's driver has them; the log-probs are still to come."""
    generator = torch.Generator().manual_seed(1000 * step + arguments["rank"])
    rows, width = arguments["rows"], arguments["width"]
    ids = torch.randint(0, 32, (rows, PROMPT + width), generator=generator)
    lengths = torch.randint(2, width + 1, (rows, 1), generator=generator)
    response_mask = (torch.arange(width) < lengths).long()
    attention_mask = torch.cat([torch.ones(rows, PROMPT, dtype=torch.long), response_mask], 1)
    fields = {
        "input_ids": ids,
        "prompts": ids[:, :PROMPT],
        "responses": ids[:, PROMPT:],
        "attention_mask": attention_mask,
        "position_ids": (attention_mask.cumsum(1) - 1).clamp(min=0),
        "response_mask": response_mask,
        "advantages": torch.randn(rows, 1, generator=generator).expand(rows, width) * response_mask,
    }
    if arguments["versions"]:
        # The rollouts of a step are one version old, and those of every fourth row began one earlier.
        newest = np.array([step] * rows, dtype=object)
        fields |= {"max_global_steps": newest, "min_global_steps": newest - (np.arange(rows) % 4 == 3)}
    batch = DataProto.from_single_dict(fields, meta_info={"temperature": 1.0})
    return batch, torch.randn(rows, width, generator=generator) * arguments["noise"]


def score(worker, batch):
    """Return the trainer's own log-probs of the responses, as verl recomputes them."""
    data = left_right_2_no_padding(batch.to_tensordict())
    tu.assign_non_tensor(data, calculate_entropy=False, compute_loss=False)
    return no_padding_2_padding(tu.get(worker.infer_batch(data), "log_probs"), data)


def update(worker, batch, arguments):
    data = left_right_2_no_padding(batch.to_tensordict())
    size = arguments["rows"] * arguments["world_size"] // arguments["minibatches"]
    tu.assign_non_tensor(
        data,
        calculate_entropy=False,
        global_batch_size=size,
        mini_batch_size=size,
        epochs=1,
        seed=0,
        dataloader_kwargs={"shuffle": False},
        compute_loss=True,
    )
    return reduce_metrics(tu.get(worker.train_mini_batch(data), "metrics"))


def publish(version):
    """Give a version to the engines, through the method of verl's worker; the sending is left out."""

    async def send_weights(weights, global_steps):
        return {}

    stub = SimpleNamespace(
        actor=SimpleNamespace(engine=SimpleNamespace(get_per_tensor_param=lambda: ({}, None))),
        checkpoint_engine=SimpleNamespace(send_weights=send_weights),
    )
    asyncio.run(engine_workers.ActorRolloutRefWorker.update_weights(stub, global_steps=version, mode="nccl"))


def main(arguments):
    torch.distributed.init_process_group(
        "gloo",
        rank=arguments["rank"],
        world_size=arguments["world_size"],
        init_method=f"file://{arguments['store'] or tempfile.mktemp()}",
    )
    with tempfile.TemporaryDirectory() as folder:
        worker = make_worker(arguments, folder)
    steps, seconds = [], []
    publish(1)
    for step in range(arguments["steps"]):
        batch, noise = make_batch(arguments, step)
        own = score(worker, batch)
        batch.batch["rollout_log_probs"] = own + noise
        batch.batch["old_log_probs"] = own if arguments["recomputed"] else own + noise
        start = time.monotonic()
        steps.append(update(worker, batch, arguments))
        seconds.append(time.monotonic() - start)
        publish(step + 2)
    digest = hashlib.sha256()
    for parameter in worker.engine.module.parameters():
        digest.update(parameter.full_tensor().detach().numpy().tobytes())
    steps = [{name: float(step[name]) for name in step if name.startswith(("actor/", "satwatch/"))} for step in steps]
    sys.stdout.write(json.dumps({"steps": steps, "weights": digest.hexdigest(), "seconds": seconds}) + "\n")
    torch.distributed.destroy_process_group()


main(ARGUMENTS)
