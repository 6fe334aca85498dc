"""A real trainer's smallest meal: a random Llama of 60,000 weights, one token a byte, four prompts, a toy reward.

Everything is made here, offline, and the same on every call.
"""

from __future__ import annotations

import copy
import tempfile
from collections import deque

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig

# The model is too small for two threads to be worth their keep.
torch.set_num_threads(1)

PROMPTS = ("hello", "abc", "the cat", "12+3=")
WIDTH = 12  # tokens of a completion at most


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "<pad>", "<s>", "</s>"])}
    bytewise = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=bytewise, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="left"
    )


TOKENIZER = tokenizer()


def model(seed=0):
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(TOKENIZER),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=TOKENIZER.pad_token_id,
            bos_token_id=TOKENIZER.bos_token_id,
            eos_token_id=TOKENIZER.eos_token_id,
        )
    )


def prompts(repeats=8):
    return Dataset.from_dict({"prompt": list(PROMPTS) * repeats})


def vowels(completions, **_):
    """A reward: how many vowels, and a little for each letter."""
    texts = [text if isinstance(text, str) else text[0]["content"] for text in completions]
    return [0.25 * sum(text.count(vowel) for vowel in "aeiou") + 0.01 * len(text) for text in texts]


@torch.no_grad()
def generate(policy, texts, seed, width=WIDTH):
    """Sample a completion of each text: prompts' ids, completions' ids and the log-probs of these, a row each."""
    prompts = TOKENIZER(texts, add_special_tokens=False, padding=True, return_tensors="pt")
    ids, attention = prompts["input_ids"], prompts["attention_mask"]
    start, picked = ids.shape[1], []
    generator = torch.Generator().manual_seed(seed)
    for _ in range(width):
        scores = torch.log_softmax(policy(input_ids=ids, attention_mask=attention).logits[:, -1].float(), -1)
        tokens = torch.multinomial(scores.exp(), 1, generator=generator)
        picked.append(scores.gather(1, tokens))
        ids = torch.cat([ids, tokens], 1)
        attention = torch.cat([attention, torch.ones_like(tokens)], 1)
    completions, logprobs = [], torch.cat(picked, 1).tolist()
    for row in ids[:, start:].tolist():
        end = row.index(TOKENIZER.eos_token_id) + 1 if TOKENIZER.eos_token_id in row else width
        completions.append(row[:end])
    logprobs = [row[: len(completion)] for row, completion in zip(logprobs, completions, strict=True)]
    return TOKENIZER(texts, add_special_tokens=False)["input_ids"], completions, logprobs


class LaggedRollouts:
    """A rollout_func whose engine has the weights of ``lag`` generations ago, and says which these are.

    Attributes:
        steps: the trainer's step at each of its calls.
    """

    def __init__(self, lag=2):
        self.lag = lag
        self.steps = []
        self._weights = deque(maxlen=lag + 1)

    def __call__(self, texts, trainer):
        self.steps.append(trainer.state.global_step)
        self._weights.append(copy.deepcopy(trainer.model.state_dict()))
        engine = model().eval()
        engine.load_state_dict(self._weights[0])
        prompt_ids, completion_ids, logprobs = generate(engine, texts, seed=len(self.steps))
        version = self.steps[max(0, len(self.steps) - 1 - self.lag)]
        rollouts = {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": logprobs}
        return rollouts | {"weight_version": [version] * len(texts)}


class ScriptedRollouts:
    """A rollout_func that returns the same rollouts in every run: of the first weights, and off by some noise."""

    def __init__(self, noise=0.3):
        self.noise, self.calls = noise, 0
        self._engine = model().eval()

    def __call__(self, texts, trainer):
        self.calls += 1
        prompt_ids, completion_ids, logprobs = generate(self._engine, texts, seed=self.calls)
        generator = torch.Generator().manual_seed(self.calls)
        noisy = [
            (torch.tensor(row) + self.noise * torch.randn(len(row), generator=generator)).tolist() for row in logprobs
        ]
        return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": noisy}


def config(**given):
    """Two groups of four completions a microbatch, on the CPU, quiet."""
    given = {
        "output_dir": tempfile.mkdtemp(prefix="satwatch-trl-"),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": WIDTH,
        "max_steps": 3,
        "learning_rate": 5e-3,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        "beta": 0.0,
        "run_name": "tiny",
        **given,
    }
    return GRPOConfig(**given)


def trainer(kind, *, rollout_func=None, policy=None, callbacks=None, reward=vowels, eval_dataset=None, **given):
    """Make a trainer of a class; ``satwatch`` goes to it, the rest to its configuration."""
    satwatch = {"satwatch": given.pop("satwatch")} if "satwatch" in given else {}
    return kind(
        model=model() if policy is None else policy,
        reward_funcs=reward,
        args=config(**given),
        train_dataset=prompts(),
        eval_dataset=eval_dataset,
        processing_class=TOKENIZER,
        rollout_func=rollout_func,
        callbacks=callbacks,
        **satwatch,
    )


def logged(trainer, name):
    """What a trainer logged under a name, in order."""
    return [row[name] for row in trainer.state.log_history if name in row]
