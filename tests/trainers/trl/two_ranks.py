"""Both trainers on two data-parallel ranks: started twice by torchrun, from test_two_ranks.py."""

from __future__ import annotations

import sys
import tempfile
import types

import tests.trainers.trl.test_grpo_async as on_a_cpu
import tests.trainers.trl.tiny as tiny
from satwatch.hooks.trl import SatAsyncGRPOTrainer, SatGRPOTrainer


def synchronous():
    return tiny.trainer(
        SatGRPOTrainer, max_steps=4, per_device_train_batch_size=4, steps_per_generation=2, run_name="sync"
    )


def asynchronous(folder):
    flash = types.SimpleNamespace(flash_attn_varlen_func=on_a_cpu.attention)
    on_a_cpu.packing._flash_attn = lambda: flash
    on_a_cpu.async_grpo_trainer.get_peak_flops_per_device = lambda *_, **__: 1e12
    return on_a_cpu.made(
        SatAsyncGRPOTrainer,
        folder,
        on_a_cpu.Engine(),
        max_steps=5,
        weight_sync_steps=2,
        per_device_train_batch_size=4,
        run_name="async",
    )


def main():
    with tempfile.TemporaryDirectory() as folder:
        # Before the ranks know each other: after that only the first of them would write.
        tiny.model().save_pretrained(folder)
        tiny.TOKENIZER.save_pretrained(folder)
        for make in (synchronous, lambda: asynchronous(folder)):
            trainer = make()
            trainer.train()
            trainer.attachment.client.close()
            lags, missed = (tiny.logged(trainer, f"satwatch/{of}") for of in ("version_lag_max", "client_fallbacks"))
            sys.stdout.write(f"\nrank {trainer.accelerator.process_index}: {lags} {max(missed)}\n")


if __name__ == "__main__":
    main()
