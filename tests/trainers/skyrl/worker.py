"""One rank of SkyRL's own FSDP policy worker, on the CPU: its microbatches, its loss call, its reduction of metrics.

Ray, FSDP's sharding and the GPU are left out; the model is a tiny Llama in SkyRL's own wrapper.
"""

from __future__ import annotations

import os
import pickle
import sys
import types
import warnings
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import torch

VOCABULARY, PROMPT, RESPONSE, SEQUENCES, MICRO = 32, 4, 6, 4, 2
STEPS = 3


def logprobs(model, sequences):
    """Log-probs of the responses, as SkyRL's wrapper has them."""
    return model(sequences, RESPONSE, attention_mask=torch.ones_like(sequences), temperature=1.0)


def rollouts(model, rank, step, *, empty):
    """One step's batch as the controller hands it to a rank; `empty`: no token is active."""
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
    from skyrl.backends.skyrl_train.utils.ppo_utils import apply_loss_reduction_to_advantages_minibatch

    generator = torch.Generator().manual_seed(100 * step + rank)
    sequences = torch.randint(0, VOCABULARY, (SEQUENCES, PROMPT + RESPONSE), generator=generator)
    with torch.no_grad():
        old = logprobs(model, sequences)
    behavior = old + 0.05 * torch.randn(old.shape, generator=generator)
    mask = torch.ones(SEQUENCES, RESPONSE)
    mask[0, -2:] = 0
    mask = mask * (not empty)
    signs = torch.randn(SEQUENCES, 1, generator=generator).sign().expand(SEQUENCES, RESPONSE)
    batch = TrainingInputBatch(
        {
            "sequences": sequences,
            "attention_mask": torch.ones_like(sequences),
            "action_log_probs": old,
            "advantages": apply_loss_reduction_to_advantages_minibatch(signs, mask, "token_mean", MICRO, 64),
            "loss_mask": mask,
            "response_mask": torch.ones(SEQUENCES, RESPONSE),
            "rollout_logprobs": behavior.masked_fill(mask == 0, 0.0),
        }
    )
    batch.metadata = {"response_length": RESPONSE}
    return batch


def make(loss, config):
    """A policy worker of this process, which is a rank of a process group already."""
    from skyrl.backends.skyrl_train.distributed.fsdp_strategy import FSDPStrategy
    from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry
    from skyrl.backends.skyrl_train.workers.model_wrapper import HFModelWrapper
    from skyrl.backends.skyrl_train.workers.worker import PolicyWorkerBase
    from skyrl.train.config import FSDPConfig, OptimizerConfig
    from torch.distributed.device_mesh import init_device_mesh
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = HFModelWrapper(LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=2, **sizes)))
    worker = PolicyWorkerBase.__new__(PolicyWorkerBase)
    worker.cfg = SimpleNamespace(algorithm=config, micro_train_batch_size_per_gpu=MICRO, max_tokens_per_microbatch=-1)
    worker.policy_loss_fn = PolicyLossRegistry.get(loss)
    worker.model = model
    worker.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    worker.scheduler = torch.optim.lr_scheduler.ConstantLR(worker.optimizer)
    worker.strategy = FSDPStrategy(FSDPConfig(), OptimizerConfig())
    worker.device_mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(), 1), mesh_dim_names=("dp", "sp"))
    worker.mesh_rank = SimpleNamespace(dp_size=torch.distributed.get_world_size())
    return worker


def without_flash_attention():
    """Stand in for the kernels that SkyRL imports and, without padding removal, does not call."""
    for name in ("flash_attn", "flash_attn.bert_padding"):
        module = sys.modules[name] = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
    module.pad_input = module.unpad_input = None


def run(rank, ranks, folder, plans):
    """Train as a rank, once a plan, and leave what was seen in a file.

    Args:
        rank: this rank.
        ranks: how many there are.
        folder: where to leave it.
        plans: by name, SkyRL's loss and the environment.
    """
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=ranks)
    # Where SkyRL takes its device from.
    torch.cuda.current_device = lambda: torch.device("cpu")
    warnings.filterwarnings("ignore", "User provided device_type of 'cuda'")
    without_flash_attention()

    from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry
    from skyrl.train.config import AlgorithmConfig

    from satwatch.hooks import skyrl

    PolicyLossRegistry.register("sat", skyrl.sat_loss)
    results = {}
    for name, (loss, environment) in plans.items():
        os.environ.update(environment)
        skyrl._regular = skyrl.RegisteredLoss("regular", "token")
        worker = make(loss, AlgorithmConfig(policy_loss_type=loss, use_kl_loss=False, temperature=1.0))
        seen = []
        for step in range(STEPS):
            batch = rollouts(worker.model, rank, step, empty=rank == 1 and step == 0)
            seen.append(worker.forward_backward(batch).metrics)
            worker.optim_step()
        weights = torch.cat([weight.detach().flatten() for weight in worker.model.parameters()])
        results[name] = seen, weights
    Path(folder, f"rank{rank}").write_bytes(pickle.dumps(results))
    torch.distributed.destroy_process_group()
