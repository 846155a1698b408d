"""Rules that move λ: they reach the right point of B·Δ, stay in it, and leave its boundary when they should."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.nn.multipliers import LogMultiplier, SoftplusMultiplier

BOUND = 2.0


def ascended(start: SoftplusMultiplier, violation: list[float], steps: int, rate: float = 0.03) -> SoftplusMultiplier:
    adam, signal = optax.adam(rate), jnp.asarray(violation)

    def step(carry, _):  # type: ignore[no-untyped-def]
        multiplier, opt = carry
        move, opt = adam.update(multiplier.slope(signal, BOUND), opt)
        return (optax.apply_updates(multiplier, move).within(BOUND), opt), None

    found: SoftplusMultiplier = jax.lax.scan(step, (start, adam.init(start)), length=steps)[0][0]
    return found


@pytest.mark.parametrize("violation", [[1.0], [0.3, 0.9], [0.9, 0.3], [0.5, -0.2], [0.2, 0.1, 0.6]])
def test_constant_violations_end_where_the_linear_program_does(violation: list[float]) -> None:
    """max_{λ ∈ B·Δ} λ·v is at B times the most violated limit; the boundary's own slope leads along it."""
    found = ascended(SoftplusMultiplier.create(0.5, len(violation), BOUND), violation, 1500)
    expected = np.zeros(len(violation))
    expected[np.argmax(violation)] = BOUND
    np.testing.assert_allclose(found.lam, expected, atol=0.01)


@settings(max_examples=20, deadline=None)
@given(violation=st.lists(st.floats(-1, 1), min_size=3, max_size=3), start=st.floats(0.01, 3))
def test_no_step_leads_out_of_the_dual_set(violation: list[float], start: float) -> None:
    for steps in (0, 1, 40):
        lam = np.asarray(ascended(SoftplusMultiplier.create(start, 3, BOUND), violation, steps, rate=0.5).lam)
        assert (lam >= 0).all()
        assert lam.sum() <= BOUND * (1 + 1e-5)


@pytest.mark.parametrize("costs", [1, 2])
def test_however_long_it_was_pressed_against_its_bound_a_price_comes_back_at_once(costs: int) -> None:
    """A thousand steps at the bound cost no more time to undo than a hundred."""
    left = []
    for steps in (100, 1000):
        pressed = ascended(SoftplusMultiplier.create(1.0, costs, BOUND), [0.7] * costs, steps)
        assert float(pressed.lam.sum()) == pytest.approx(BOUND, rel=1e-5)
        left.append(np.asarray(ascended(pressed, [-0.7] * costs, 20).lam))
        assert (left[-1] < 0.8 * np.asarray(pressed.lam)).all()
    np.testing.assert_allclose(left[0], left[1], rtol=1e-3)


def test_the_published_rule_is_the_exponential_of_the_summed_violations() -> None:
    violations, rate = np.random.default_rng(0).normal(size=(200, 2)), 0.05
    multiplier = LogMultiplier.create(1.0, 2)
    for violation in violations:
        multiplier = multiplier.step(jnp.asarray(violation), rate, 1e9)
    np.testing.assert_allclose(multiplier.lam, np.exp(rate * violations.sum(0)), rtol=1e-4)
    np.testing.assert_allclose(multiplier.step(jnp.asarray([1e3, -1e3]), rate, 2.0).lam, [2.0, np.exp(-10)], rtol=1e-5)
