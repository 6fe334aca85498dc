"""Capture: what the routers of a model return in its own forward pass, microbatch by microbatch, on the device."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import nn

from satwatch.errors import InvalidBatchError, required
from satwatch.hooks.core.eager import not_compiled
from satwatch.hooks.core.metrics import PREFIX
from satwatch.hooks.routing.replay import ReplayFinding, verify_replay
from satwatch.hooks.routing.routers import Router, find_routers
from satwatch.sat import align_routes, compare_routes
from satwatch.sat.routes import MISSING, Array
from satwatch.types import Routing

logger = logging.getLogger("satwatch")

EngineRoutes: TypeAlias = Array | Sequence[Array | None] | None

_SAID_AT_MOST: Final = 16
_is_compiling: Final = getattr(torch.compiler, "is_compiling", lambda: False)  # torch 2.1 has none


class RouterCapture:
    """Keeps the experts that a model's MoE layers choose in one microbatch at a time.

    Outside of a microbatch nothing of it is in the model. Inside, the first forward pass counts: a recomputation
    (gradient checkpointing) is not counted again, but compared with it, if the backward pass runs inside too.

    Attributes:
        routers: what is watched, by layer.
        layers: their layers' indices.
    """

    def __init__(self, model: nn.Module, *, replay: bool = False, routers: Sequence[Router] | None = None) -> None:
        """Look for the routers.

        Args:
            model: any module that holds them; a wrapper, such as FSDP's, is looked through.
            replay: routing replay (R3) is on, so any difference is a finding: logged once, and counted.
            routers: what to watch, for models whose routers :func:`find_routers` does not know.

        Raises:
            ConfigError: no routers, or two in one layer.
        """
        self.routers = find_routers(model) if routers is None else sorted(routers, key=lambda router: router.layer)
        self.layers = [router.layer for router in self.routers]
        self._replay = replay
        self._handles: list[Any] = []
        self._chosen: dict[int, torch.Tensor] = {}
        self._recomputed: torch.Tensor | None = None
        self._replayed = ReplayFinding()
        self._said: set[str] = set()

    @contextmanager
    def microbatch(self) -> Iterator[RouterCapture]:
        """Watch the forward pass in this block; what an earlier block saw is forgotten."""
        self.close()
        self._chosen = {}
        try:
            for router in self.routers:  # each kept at once: whatever the next one raises, it is taken out again
                self._handles.append(router.module.register_forward_hook(self._hook(router)))
            yield self
        finally:
            self.close()

    def close(self) -> None:
        """Take the hooks out of the model."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def routes(self) -> torch.Tensor:
        """Return the experts of the latest microbatch, (tokens, layers, top_k), padding included, on the device.

        Tokens are in the model's order: row after row of a (B, T) batch. A layer that did not run is -1.

        Raises:
            InvalidBatchError: no router ran, or the layers saw different numbers of tokens.
        """
        return torch.stack(self._by_layer(), dim=1)

    @not_compiled
    def compare(
        self,
        engine: EngineRoutes,
        *,
        mask: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        sequence_lengths: Sequence[int] | None = None,
    ) -> Routing | None:
        """Count where the engine chose other experts than the latest microbatch, for ``routing=`` of a batch.

        Args:
            engine: what the engine reported: (B, T, L, K), or (N, L, K) for a packed row; or a list with (t, L, K) or
                None of each sequence, which ``attention_mask`` or ``sequence_lengths`` puts in place. L is the model's
                MoE layers or all its layers.
            mask: positions to compare, (B, T) or (N,); None: all. Those whose routes decide the loss are
                :func:`satwatch.sat.predicting_positions` of the loss mask.
            attention_mask: (B, T), for a list.
            sequence_lengths: tokens of each sequence of a packed row, for a list.

        Returns:
            Counts; None where nothing can be compared, which is logged once: this never raises into a training run.
        """
        try:
            counts = self._compare(engine, mask, attention_mask, sequence_lengths)
        except Exception as error:  # noqa: BLE001 - the hook's edge: no fault of ours may end a run, see docs/decisions.md
            # By what is wrong, not by what came: shapes change with every batch.
            kind = f"{type(error).__name__}: {str(error).partition(':')[0]}"
            self._say(f"routes could not be compared; the run goes on: {type(error).__name__}: {error}", kind)
            return None
        if self._replay:
            self._note(verify_replay(counts))
        return counts

    @not_compiled
    def drain(self) -> dict[str, float]:
        """Return ``satwatch/...`` metrics since the last call, for the trainer's own logger.

        ``router_replay_flips`` if replay is on and a token was compared; ``router_recompute_flips`` if a recomputation
        was seen: (token, layer) pairs whose experts differ. Waits for the device, once.
        """
        flips = self._replayed.flips
        out = {} if flips is None else {f"{PREFIX}router_replay_flips": float(flips)}
        if self._recomputed is not None:
            out[f"{PREFIX}router_recompute_flips"] = recomputed = float(self._recomputed)
            if recomputed:
                what = "the recomputation of gradient checkpointing chose other experts than the forward pass"
                self._say(f"{what}: {recomputed:.0f} (token, layer) pairs", what)
        self._replayed, self._recomputed = ReplayFinding(), None
        return out

    def _compare(
        self,
        engine: EngineRoutes,
        mask: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        sequence_lengths: Sequence[int] | None,
    ) -> Routing:
        experts = max(router.num_experts for router in self.routers)
        if engine is None:
            raise InvalidBatchError(required("engine", "no routes", "those of a request with return_routed_experts"))
        if not isinstance(engine, torch.Tensor | np.ndarray):
            lengths = {"attention_mask": attention_mask, "sequence_lengths": sequence_lengths}
            engine = align_routes(engine, num_experts=experts, **lengths)  # type: ignore[arg-type]
        reported = self._moe_layers(engine)
        ours = self._by_layer()
        if reported.ndim == 4:
            ours = [layer.unflatten(0, (reported.shape[0], -1)) for layer in ours]
        return compare_routes(reported, ours, mask=mask, num_experts=experts, layers=self.layers)

    def _moe_layers(self, engine: Array) -> Array:
        """Leave out the dense layers of a report on all layers."""
        reported = engine.shape[-2] if engine.ndim in (3, 4) else 0
        if reported == len(self.layers):
            return engine
        if reported <= self.layers[-1]:
            wanted = f"{len(self.layers)} MoE layers, or all layers up to {self.layers[-1]} and more"
            raise InvalidBatchError(required("engine", f"shape {tuple(engine.shape)}", wanted))
        return engine[..., self.layers, :]

    def _by_layer(self) -> list[torch.Tensor]:
        if not self._chosen:
            raise InvalidBatchError(
                required("routes", "no router that ran", "a forward pass inside microbatch(), of a model not compiled")
            )
        some = next(iter(self._chosen.values()))
        by_layer = [self._chosen.get(layer) for layer in self.layers]
        shapes = {tuple(layer.shape) for layer in by_layer if layer is not None}
        if len(shapes) > 1:
            raise InvalidBatchError(required("routes", f"layers of shapes {sorted(shapes)}", "one shape"))
        return [torch.full_like(some, MISSING) if layer is None else layer.to(some.device) for layer in by_layer]

    def _hook(self, router: Router) -> Any:  # noqa: ANN401 - what torch calls: module, arguments, output
        def forward_hook(module: nn.Module, args: object, output: object) -> None:
            # A graph would keep the hook, or break on it: a compiled model is left alone, and found to have no routes.
            if _is_compiling():
                return
            try:
                self._record(router, output)
            except Exception as error:  # noqa: BLE001 - the hook's edge, as above
                self._say(f"{router.name}: its routes are not read: {type(error).__name__}: {error}")

        return forward_hook

    def _record(self, router: Router, output: object) -> None:
        experts = router.experts(output)
        known = self._chosen.get(router.layer)
        if experts is None:
            kind = type(router.module).__name__
            self._say(f"{router.name}: no expert ids in what {kind} returns; it is not compared", kind)
        elif _in_backward():
            if known is not None:
                flips = (known.sort(-1).values != experts.sort(-1).values).any(-1).sum()
                self._recomputed = flips if self._recomputed is None else self._recomputed.to(flips.device) + flips
        elif known is None:
            self._chosen[router.layer] = experts
        else:
            what = "a second forward pass in one microbatch is not recorded"
            self._say(f"{router.name}: {what}", what)

    def _note(self, finding: ReplayFinding) -> None:
        if finding.flips_by_layer:
            self._say(str(finding), "routing replay does not work")
        self._replayed = self._replayed.merge(finding)

    def _say(self, what: str, kind: str | None = None) -> None:
        if (kind or what) not in self._said and len(self._said) < _SAID_AT_MOST:
            self._said.add(kind or what)
            logger.warning("satwatch, routing: %s", what)


def _in_backward() -> bool:
    """Tell whether this thread runs a backward pass: a forward pass in it recomputes one."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1
