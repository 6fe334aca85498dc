"""Which weights scored a canary: the trainer's log-probs of the same tokens tell.

d = log pi - log mu, token by token: the trainer's log-prob of a canary's token minus the engine's. At equal weights
what is left of d is the implementation's own (delta_impl); at other weights it is more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from satwatch.types import CanaryScores, DTypeName, PackedFloats

Floats: TypeAlias = npt.NDArray[np.float64]

# Under the claimed version a test at z is passed by chance at most exp(-z^2 / 2) = 3e-4 of the time, for any number of
# tokens and any noise that is symmetric and has one peak.
DECISIVE: Final = 4.0
LEAST_TOKENS: Final = 16
EQUAL: Final = 1e-9
# What log-probs that crossed a wire as float32 may still differ by.
UNCHANGED: Final = 1e-6
# Another temperature stretches log-probs and leaves little unexplained; noise and other weights do the reverse.
LEAST_STRETCH: Final = 0.05
STRETCH_LIMITS: Final = (0.1, 10.0)
MOST_UNEXPLAINED: Final = 0.5
LEAST_CORRELATION: Final = 0.9

_PLAIN: Final[dict[DTypeName, str]] = {"float64": "<f8", "float32": "<f4", "float16": "<f2"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """d over a canary's tokens that both sides scored with a finite number.

    Attributes:
        tokens: how many these are.
        not_finite: the others.
        mean: of d, nats.
        abs_mean: mean abs(d).
        abs_max: max abs(d).
        rms: the root of mean d^2.
    """

    tokens: int
    not_finite: int
    mean: float
    abs_mean: float
    abs_max: float
    rms: float


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Whose scores an engine's are.

    Attributes:
        scores: the nearest version's.
        comparison: against it.
        near: the differences from it.
        others: the other versions that were compared; ``far``: the differences from them, a row a version.
    """

    scores: CanaryScores
    comparison: Comparison
    near: Floats = field(repr=False)
    others: tuple[int, ...]
    far: Floats = field(repr=False)

    @property
    def also(self) -> tuple[int, ...]:
        """Other versions that can't be told from it by these tokens, oldest first; computed when asked, seldom."""
        if not self.others:
            return ()
        is_nearer = _are_nearer(self.near, self.far)
        return tuple(sorted(other for other, is_told in zip(self.others, is_nearer, strict=True) if not is_told))


def floats(packed: PackedFloats) -> Floats:
    """Unpack to float64.

    >>> floats(PackedFloats("bfloat16", bytes.fromhex("803f00c0"))).tolist()
    [1.0, -2.0]
    """
    if packed.dtype == "bfloat16":  # the upper half of a float32, which numpy has no name for
        upper = np.frombuffer(packed.data, dtype="<u2").astype(np.uint32) << 16
        return upper.view(np.float32).astype(np.float64)
    return np.frombuffer(packed.data, dtype=_PLAIN[packed.dtype]).astype(np.float64)


def compare(scores: CanaryScores, logprobs: Sequence[float]) -> Comparison | None:
    """Compare a trainer's scores with an engine's log-probs of the same tokens; None: no token has both.

    >>> from satwatch.types import Canary
    >>> scores = CanaryScores(Canary(((1, 2, 3),)), 5, PackedFloats("float64", np.array([-1.0, -2.0]).tobytes()))
    >>> compare(scores, [-1.5, -2.0]).abs_mean
    0.25
    """
    return _compare(_differences(scores, np.asarray(logprobs, dtype=np.float64)))


def distance(a: Sequence[float], b: Sequence[float]) -> Comparison | None:
    """Compare two answers of engines; None: no token has both."""
    if len(a) != len(b):
        return None
    return _compare(subtract(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)))


def _differences(scores: CanaryScores, logprobs: Floats) -> Floats:
    pi = floats(scores.logprobs)
    return subtract(pi, logprobs) if len(pi) == len(logprobs) else np.full(1, np.nan)


def subtract(a: Floats, b: Floats) -> Floats:
    """Return a - b; what is beyond a float is infinite, or NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        return a - b


def _compare(differences: Floats) -> Comparison | None:
    d = differences[np.isfinite(differences)]
    if not d.size:
        return None
    size = np.abs(d)
    largest = float(size.max())
    # Scaled: an absurd log-prob must not overflow the square.
    rms = largest * math.sqrt(float(np.mean((d / largest) ** 2))) if largest else 0.0
    with np.errstate(over="ignore"):
        mean, abs_mean = float(d.mean()), float(size.mean())
    if not math.isfinite(abs_mean):
        return None
    return Comparison(d.size, differences.size - d.size, mean, abs_mean, largest, rms)


def stack(versions: Iterable[CanaryScores]) -> Floats:
    """Unpack scores of one length, a row a version."""
    rows = [floats(scores.logprobs) for scores in versions]
    return np.array(rows) if rows else np.empty((0, 0))


def nearest(versions: Iterable[CanaryScores], logprobs: Sequence[float], prefer: int | None = None) -> Match | None:
    """Return the version whose scores lie nearest, by mean abs(d); of equally near ones ``prefer``, else the latest."""
    mu = np.asarray(logprobs, dtype=np.float64)
    fit = [scores for scores in versions if len(scores.logprobs) == len(mu)]
    return nearest_row(fit, stack(fit), mu, prefer)


def nearest_row(versions: Sequence[CanaryScores], pi: Floats, mu: Floats, prefer: int | None = None) -> Match | None:
    """Do the same with scores that are stacked already: ``pi`` has a row for each of ``versions``."""
    if not versions or pi.shape[1] != len(mu):
        return None
    d = subtract(pi, mu)
    size = abs_means(d)
    candidates = np.flatnonzero(np.isfinite(size)).tolist()
    if not candidates:
        return None
    best = min(candidates, key=lambda i: (size[i], versions[i].version != prefer, -versions[i].version))
    comparison, others = _compare(d[best]), [i for i in candidates if i != best]
    if comparison is None:
        return None
    return Match(versions[best], comparison, d[best], tuple(versions[i].version for i in others), d[others])


def abs_means(d: Floats) -> Floats:
    """Return each row's mean abs(d) over its finite values; not finite where there are none, or it overflows."""
    finite = np.isfinite(d)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        means: Floats = np.where(finite, np.abs(d), 0.0).sum(axis=1) / finite.sum(axis=1)
    return means


def is_decisive(claimed: CanaryScores, other: CanaryScores, logprobs: Sequence[float]) -> bool:
    """Tell whether the tokens decide that an engine's scores are ``other``'s and not ``claimed``'s.

    D_t = abs(d_claimed,t) - abs(d_other,t);  z = sum D_t / sqrt(sum D_t^2) > 4, which takes 17 tokens.

    If the engine has the claimed weights and its noise is symmetric with one peak, D_t is as likely to be -x as x or
    likelier, so that z exceeds 4 by chance at most exp(-8) = 3e-4 of the time (Hoeffding); far less where the versions
    differ visibly. Absolute values rather than squares: abs(D_t) is at most what the two versions differ by, so that no
    token that the engine got absurdly wrong weighs more than that, and one token alone never gets beyond z = 1.

    A bias of the whole canary, such as of a coarser number format, could lean like another version: the test has to
    pass with each side's median difference taken out, too.

    Scores equal to the other's within 1e-9 decide by themselves: noise doesn't hit every digit.
    """
    mu = np.asarray(logprobs, dtype=np.float64)
    return _is_nearer(_differences(other, mu), _differences(claimed, mu))


def _is_nearer(near: Floats, far: Floats) -> bool:
    return near.size == far.size and _are_nearer(near, far[np.newaxis])[0]


def _are_nearer(near: Floats, far: Floats) -> list[bool]:
    """Tell of each row of ``far`` whether the tokens decide for ``near`` against it; both are differences d."""
    both = np.isfinite(near) & np.isfinite(far)
    everywhere = both.all(axis=0)
    if (both.any(axis=0) != everywhere).any():  # the rows miss different tokens: seldom, and then one by one
        return [_is_nearer(near, row) for row in far]
    near, far = near[everywhere], far[:, everywhere]
    if not near.size:
        return [False] * len(far)
    if np.abs(near).max() <= EQUAL:
        return [bool(other > UNCHANGED) for other in np.abs(far).max(axis=1)]
    plain = _z(near, far)
    centred = _z(near - np.median(near), far - np.median(far, axis=1, keepdims=True))
    return [bool(z > DECISIVE) for z in np.minimum(plain, centred)]


def _z(near: Floats, far: Floats) -> Floats:
    """Return each row's sum D / sqrt(sum D^2); 0 where nothing differs, or by more than a float holds."""
    advantage = np.abs(far) - np.abs(near)
    scale = np.abs(advantage).max(axis=1, keepdims=True)
    is_meant = (scale > 0) & np.isfinite(scale)
    # Scaled: an absurd log-prob must not overflow the square.
    advantage = np.where(is_meant, advantage / np.where(is_meant, scale, 1.0), 1.0)
    z: Floats = advantage.sum(axis=1) / np.sqrt((advantage**2).sum(axis=1))
    return np.where(is_meant[:, 0], z, 0.0)


def stretch(scores: CanaryScores, logprobs: Sequence[float]) -> tuple[float, float] | None:
    """Tell whether a trainer's scores look like the engine's at another temperature.

    log pi_T = z_y / T - log sum exp(z / T): over many tokens nearly a straight line in log mu with a slope of 1 / T.
    The least-squares line of log pi on log mu is taken for a temperature where its slope is off 1 by more than 0.05
    (and inside 0.1 to 10), the two correlate by more than 0.9, and it leaves less than half of the mismatch
    unexplained. Independent weights don't correlate; noise is not explained by a line. Tokens whose contexts differ
    much in entropy scatter about the line, and a temperature is then not recognised: it is better told than guessed.

    Returns:
        The temperature, and the mean absolute residual, nats; None: it does not look like one.
    """
    pi, mu = floats(scores.logprobs), np.asarray(logprobs, dtype=np.float64)
    if len(pi) != len(mu):
        return None
    both = np.isfinite(pi) & np.isfinite(mu) & (np.abs(pi) < 1e6) & (np.abs(mu) < 1e6)
    pi, mu = pi[both], mu[both]
    if pi.size < LEAST_TOKENS or np.ptp(mu) < UNCHANGED or np.ptp(pi) < UNCHANGED:
        return None
    x, y = mu - mu.mean(), pi - pi.mean()
    slope = float((x * y).sum() / (x * x).sum())
    correlation = float((x * y).sum() / math.sqrt(float((x * x).sum() * (y * y).sum())))
    unexplained = float(np.abs(y - slope * x).mean())
    low, high = STRETCH_LIMITS
    if not (low < slope < high and abs(slope - 1) > LEAST_STRETCH and correlation > LEAST_CORRELATION):
        return None
    return (1 / slope, unexplained) if unexplained < MOST_UNEXPLAINED * float(np.abs(pi - mu).mean()) else None
