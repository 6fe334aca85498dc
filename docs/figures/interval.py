"""Draw docs/figures/interval.svg: what the rule does to the clip interval, computed by the code it documents.

Needs matplotlib, which is no dependency of satwatch: `pip install matplotlib`, then `python docs/figures/interval.py`.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch

from satwatch.sat import clip_bounds

BLUE, ORANGE, GREY = "#2b6cb0", "#c05621", "#718096"


def draw(path: Path) -> None:
    """Draw the interval of every token of one batch, ordered by its log-ratio, above a histogram of the batch."""
    generator = torch.Generator().manual_seed(3)
    calm = torch.randn(3800, generator=generator, dtype=torch.float64) * 0.008
    tail = torch.randn(200, generator=generator, dtype=torch.float64) * 0.06
    d = torch.cat([calm, tail]).sort().values
    bounds = clip_bounds(d)
    q = float(bounds.quantile_reference)
    # Every token of the tail, and every twentieth of the rest: the curve is flat there.
    shown = torch.nonzero((d.abs() > 0.9 * q) | (torch.arange(len(d)) % 20 == 0)).flatten()
    at, low, high = d[shown], bounds.low[shown], bounds.high[shown]

    mpl.rcParams.update(
        {"svg.hashsalt": "satwatch", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10}
    )
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 4.2), height_ratios=[3, 1])
    above.fill_between(at, low, high, color=BLUE, alpha=0.18, lw=0, label="SAT's interval")
    above.plot(at, high, color=BLUE, lw=1.4)
    above.plot(at, low, color=BLUE, lw=1.4)
    above.hlines([0.8, 1.2], d[0], d[-1], color=GREY, ls="--", lw=1, label="PPO's interval")
    above.plot(at, at.exp(), color=ORANGE, lw=1.2, label="ratio r = exp(d)")
    above.set_ylabel("ratio")
    above.set_ylim(0.75, 1.25)
    above.legend(loc="lower left", bbox_to_anchor=(0.0, 0.1), frameon=False)
    for axes in (above, below):
        axes.axvspan(-q, q, color=GREY, alpha=0.10, lw=0)
        axes.spines[["top", "right"]].set_visible(False)
    above.text(0, 1.215, f"90% of the tokens: |d| ≤ q = {q:.3f}", ha="center", color=GREY)
    below.hist(d.tolist(), bins=160, color=GREY)
    below.set_yscale("log")
    below.set_ylabel("tokens")
    below.set_xlabel("log-ratio d = log π_train - log μ_rollout (nats)")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(Path(__file__).with_name("interval.svg"))
