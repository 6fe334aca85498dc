"""NeMo-RL: SAT in ``ClippedPGLossFn``.

Sends d = log pi_old - log mu, ``prev_logprobs - generation_logprobs``: the trainer at the weights before the step's
updates against the engine. Both are there before the loss is, so a packed microbatch is asked for whole.

The stock loss clips pi_now/pi_old and weighs it by pi_old/mu. With the rule enabled it gets mu in the place of pi_old,
on a copy of the data, and no weight: it clips pi_now/mu, the ratio that d speaks of. Its numerator is pi_now and d's is
pi_old: the same up to the step's first update. Where the weight also drops tokens (``icepop``, ``seq-mask-tis``), the
loss keeps its ratio and its weight, and the run is reported as decoupled.
"""

from __future__ import annotations

import copy
import functools
import uuid
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import torch
from nemo_rl.algorithms.loss import ClippedPGLossFn, SequencePackingLossWrapper

from satwatch.client import BoundsClient
from satwatch.errors import ConfigError, required
from satwatch.hooks.core.denominator import denominator
from satwatch.hooks.core.metrics import PREFIX
from satwatch.hooks.core.notices import Notices
from satwatch.hooks.core.radii import ClipRadii
from satwatch.hooks.core.ranks import at_rank, place
from satwatch.hooks.core.slots import lent
from satwatch.hooks.core.summed import COUNTS, SHARES, SummedAttachment

_NO_BEHAVIOR: Final = (
    "the training data has no generation_logprobs or no prev_logprobs, so there is nothing to compare: nothing is sent "
    "and the stock loss runs. The generation backend has to return log-probs."
)
_notices = Notices("NeMo-RL")

Data: TypeAlias = MutableMapping[str, Any]
Loss: TypeAlias = tuple[torch.Tensor, dict[str, Any]]

# These losses clip no ratio: radii would do nothing, or something else.
_UNCLIPPED: Final = ("disable_ppo_ratio", "force_on_policy_ratio", "use_cispo")
_FILTERS: Final = ("icepop", "seq-mask-tis")
# The stock loss's own measures of pi_old against mu: on data that has mu twice they would say that nothing differs.
_MISMATCH: Final = (
    "token_mult_prob_error",
    "gen_kl_error",
    "policy_kl_error",
    "js_divergence_error",
    "sampling_importance_ratio",
    "is_oob_ratio",
)

# By the loss's key: the workers get a new copy of the loss with every step, and a run has one attachment.
_attachments: dict[str, SummedAttachment] = {}


class SatClippedPGLoss(ClippedPGLossFn):  # type: ignore[misc]  # NeMo-RL ships no types
    """``ClippedPGLossFn`` that clips at SAT's bounds; it takes the same arguments.

    Attaches at its first call, in the worker. It pickles; a client that it was given travels as its configuration.
    """

    def __init__(self, *args: Any, satwatch: BoundsClient | None = None, peers: int = 1, **kwargs: Any) -> None:  # noqa: ANN401 - NeMo-RL's
        """Make the loss; nothing is opened or sent before its first call.

        Args:
            args: the stock loss's.
            satwatch: what to ask, its rank set in each worker; None: a client from the worker's environment.
            peers: with the DTensor backends, the ranks that hold the same tokens: tensor times context parallel size.
                Megatron is asked.
            kwargs: the stock loss's.
        """
        super().__init__(*args, **kwargs)
        self._client, self._peers, self._key = satwatch, peers, uuid.uuid4().hex
        # While a packed microbatch is taken apart: its radii, and the sequence that comes next.
        self._whole: ClipRadii | None = None
        self._row: int | None = None
        normalizations = getattr(self, "metric_normalizations", None)
        if normalizations:  # read by trainers that divide by the step's tokens afterwards
            normalizations |= {PREFIX + name: normalizations["probs_ratio"] for name in SHARES}
            normalizations |= {PREFIX + name: normalizations["num_valid_samples"] for name in COUNTS}
        _show_packed_whole()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _show_packed_whole()

    def __call__(
        self,
        next_token_logprobs: torch.Tensor,
        data: Data,
        global_valid_seqs: torch.Tensor,
        global_valid_toks: torch.Tensor,
    ) -> Loss:
        """Return the stock loss at SAT's bounds, and its metrics."""
        stock = functools.partial(
            super().__call__,
            next_token_logprobs,
            global_valid_seqs=global_valid_seqs,
            global_valid_toks=global_valid_toks,
        )
        if self._row is not None:
            self._row += 1
            return self._bounded(stock, next_token_logprobs, data, self._whole, slice(self._row - 1, self._row))
        radii = self.ask(data, next_token_logprobs)
        loss, metrics = self._bounded(stock, next_token_logprobs, data, radii, slice(None))
        return loss, metrics | self.parts(global_valid_toks)

    def ask(self, data: Data, logprob: torch.Tensor | None = None) -> ClipRadii | None:
        """Send a microbatch; None where there is nothing to compare."""
        attachment = self._attachment()
        behavior, old = data.get("generation_logprobs"), data.get("prev_logprobs")
        if not self.force_on_policy_ratio:  # else pi_old is pi_now, and prev_logprobs a placeholder
            logprob = None if old is None else old[:, 1:]
        if behavior is None or logprob is None:
            attachment.heartbeat.call()
            _notices.give(_NO_BEHAVIOR)
            return None
        return attachment.ask(
            logprob,
            behavior[:, 1:],
            decoupled=self._drops_tokens or not attachment.guards,
            mask=_mask(data)[:, 1:],
            advantage=data["advantages"][:, 1:],
        )

    @contextmanager
    def packed(self, data: Data) -> Iterator[None]:
        """Ask for a whole microbatch, whose sequences then come one by one, without their padding."""
        self._whole, self._row = self.ask(data), 0
        try:
            yield
        finally:
            self._whole = self._row = None

    def parts(self, global_valid_toks: torch.Tensor | None) -> dict[str, float]:
        """Return what the microbatch adds to the step's ``satwatch/...`` metrics."""
        return self._attachment().parts(0.0 if global_valid_toks is None else float(global_valid_toks))

    def _bounded(
        self, stock: Callable[..., Loss], logprob: torch.Tensor, data: Data, radii: ClipRadii | None, rows: slice
    ) -> Loss:
        """Run the stock loss with radii for its epsilons, or, where there are none, as it is."""
        if radii is None or not self._attachment().guards:
            return stock(data=data)
        if self._drops_tokens:
            with self._radii_lent(data, radii, rows):
                return stock(data=data)
        with torch.no_grad():  # the answer comes meanwhile: the radii are looked at below
            _, untouched = stock(data=data)
        coupled = copy.copy(data)
        coupled["prev_logprobs"] = _behavior_as_old(data, logprob.detach())
        with self._radii_lent(data, radii, rows), lent(self, use_importance_sampling_correction=False):
            loss, metrics = stock(data=coupled)
        return loss, metrics | {name: untouched[name] for name in _MISMATCH if name in untouched}

    @contextmanager
    def _radii_lent(self, data: Data, radii: ClipRadii, rows: slice) -> Iterator[None]:
        here = rows, slice(data["token_mask"].shape[1] - 1)
        with lent(self, ratio_clip_min=radii.low[here], ratio_clip_max=radii.high[here]):
            yield

    @property
    def _drops_tokens(self) -> bool:
        """Whether the importance weight is a filter too, which no clipping replaces."""
        return bool(
            self.use_importance_sampling_correction
            and getattr(self, "truncated_importance_sampling_type", None) in _FILTERS
        )

    def _attachment(self) -> SummedAttachment:
        if self._key not in _attachments:
            rank, ranks, sends = place(self._peers)
            attachment = SummedAttachment(
                "NeMo-RL",
                at_rank(self._client, rank, ranks),
                eps_low=self.ratio_clip_min,
                eps_high=self.ratio_clip_max,
                level="sequence" if self.sequence_level_importance_ratios else "token",
                rank=rank,
                world_size=ranks,
                sends=sends,
            )
            for name in _UNCLIPPED:
                if attachment.guards and getattr(self, name, False):
                    needed = "False, or enabled = false in the client's rule to only watch: this loss clips no ratio"
                    raise ConfigError(required(f"loss_fn.{name}", "True", needed))
            _attachments[self._key] = attachment
        return _attachments[self._key]


def _mask(data: Data) -> torch.Tensor:
    mask: torch.Tensor = data["token_mask"] * data["sample_mask"].unsqueeze(-1)
    return mask


def _behavior_as_old(data: Data, logprob: torch.Tensor) -> torch.Tensor:
    """Return mu in the place of pi_old, (B, T); the first column is of no token."""
    mu, old, mask = data["generation_logprobs"], data["prev_logprobs"], _mask(data)
    return torch.cat([old[:, :1], denominator(logprob, mu[:, 1:], old[:, 1:], mask[:, 1:])], 1)


@functools.cache  # once a process
def _show_packed_whole() -> None:
    """Have NeMo-RL's wrapper, which takes a packed microbatch apart, show it to this loss first: one request for all.

    By sequence, q would be a sequence's own threshold, and at sequence level no gate would ever open.
    """
    stock: Callable[..., Loss] = SequencePackingLossWrapper.__call__

    @functools.wraps(stock)
    def call(
        wrapper: Any,  # noqa: ANN401 - NeMo-RL's
        next_token_logits: torch.Tensor,
        data: Data,
        global_valid_seqs: torch.Tensor | None,
        global_valid_toks: torch.Tensor | None,
    ) -> Loss:
        loss_fn = wrapper.loss_fn
        if not isinstance(loss_fn, SatClippedPGLoss) or loss_fn.force_on_policy_ratio:
            return stock(wrapper, next_token_logits, data, global_valid_seqs, global_valid_toks)
        with loss_fn.packed(data):
            loss, metrics = stock(wrapper, next_token_logits, data, global_valid_seqs, global_valid_toks)
        return loss, metrics | loss_fn.parts(global_valid_toks)

    SequencePackingLossWrapper.__call__ = call
