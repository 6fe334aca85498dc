"""Proposition 4.1 of arXiv 2607.18722 for all reals, by z3: no example is missed because there are no examples.

Hypothesis holds the same claims on the code, in floats; this holds them of the rule itself.
"""

from __future__ import annotations

import pytest
import z3

r, a, q, s = z3.Reals("ratio advantage quantile_reference score")
eps_low, eps_high = z3.Reals("eps_low eps_high")


def hill(u):
    return 1 / (1 + (u / q) * (u / q))


gated = z3.And(q > 0, z3.Or(s > q, -s > q))
magnitude = z3.If(s < 0, -s, s)
c_high = z3.If(z3.And(gated, s > 0), hill(magnitude), z3.RealVal(1))
c_low = z3.If(z3.And(gated, s < 0), hill(magnitude), z3.RealVal(1))
low, high = 1 - eps_low * c_low, 1 + eps_high * c_high
nominal_low, nominal_high = 1 - eps_low, 1 + eps_high
domain = z3.And(r > 0, q >= 0, eps_low > 0, eps_low < 1, eps_high > 0, eps_high < 1)


def clip(x, lower, upper):
    return z3.If(x < lower, lower, z3.If(x > upper, upper, x))


def objective(lower, upper):
    unclipped, clipped = r * a, clip(r, lower, upper) * a
    return z3.If(unclipped <= clipped, unclipped, clipped)


def derivative(lower, upper):
    """The derivative of the objective in r, away from the two corners."""
    return z3.If(z3.Or(z3.And(a > 0, r > upper), z3.And(a < 0, r < lower)), z3.RealVal(0), a)


def prove(claim) -> None:
    solver = z3.Solver()
    solver.set("timeout", 60_000)
    solver.add(domain, z3.Not(claim))
    answer = solver.check()
    assert answer == z3.unsat, f"{answer}: {solver.model() if answer == z3.sat else solver.reason_unknown()}"


bands = z3.Or(
    z3.And(a > 0, high < r, r <= nominal_high),
    z3.And(a < 0, nominal_low <= r, r < low),
)

CLAIMS = {
    "the contracted interval lies inside PPO's and holds 1": z3.And(
        nominal_low <= low, low <= 1, high >= 1, high <= nominal_high
    ),
    "only the sign-selected endpoint moves": z3.And(
        z3.Implies(low != nominal_low, z3.And(s < 0, high == nominal_high)),
        z3.Implies(high != nominal_high, z3.And(s > 0, low == nominal_low)),
    ),
    "a shut gate is PPO": z3.Implies(z3.Not(gated), z3.And(low == nominal_low, high == nominal_high)),
    "a gated token's factor is below one half": z3.Implies(gated, z3.And(magnitude > q, hill(magnitude) < z3.Q(1, 2))),
    "the surrogate is never above PPO's": objective(low, high) <= objective(nominal_low, nominal_high),
    "the derivative differs only in the two outward bands": z3.Implies(
        derivative(low, high) != derivative(nominal_low, nominal_high), bands
    ),
    "in the bands the derivative is zero": z3.Implies(bands, derivative(low, high) == 0),
    "an advantage of 0 is never clipped": z3.Implies(
        a == 0, z3.And(objective(low, high) == 0, derivative(low, high) == a)
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_holds_for_all_reals(name):
    prove(CLAIMS[name])


def test_the_prover_refutes_a_false_claim():
    solver = z3.Solver()
    solver.add(domain, z3.Not(high == nominal_high))
    assert solver.check() == z3.sat
