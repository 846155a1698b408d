"""Any method by name on a user's log."""

import json

import numpy as np
import pytest

from pdocrl.errors import PdocrlError
from pdocrl.limits import as_limits
from pdocrl.tabular.baselines import BASELINES, assess, one_policy, parameters_of, read_parameters, solve_with
from pdocrl.tabular.baselines.critics import pdca
from pdocrl.tabular.baselines.plain import plug_in
from pdocrl.tabular.cmdp import evaluate, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.exact import solve_lp
from pdocrl.tabular.solvers.lagrangian import Lagrangian, pessimistic_model

QUICK = {"pdca": 30, "wsac": 3, "a_crab": 3, "pspi": 20, "atac": 20, "mbcl": 20}


def log_of(limited=True):
    cmdp = random_cmdp(5, 3, 1 if limited else 0, 0.8, seed=1)
    cmdp = cmdp.replace(g=cmdp.g - 1, tau=cmdp.tau - 1)
    counts = Counts.sample(cmdp, np.full(cmdp.r.shape, 1 / cmdp.r.size), 2000, seed=0)
    return counts, {"cost": -float(cmdp.tau[0])} if limited else {}


def model_of(counts, limits):
    return pessimistic_model(Lagrangian.empirical(counts, 0.8, as_limits(limits)))


@pytest.mark.parametrize("method", sorted(BASELINES))
def test_every_method_gives_a_policy_with_a_certificate_that_bounds_its_error_in_the_log(method):
    counts, limits = log_of(BASELINES[method].limits)
    parameters = {"iterations": QUICK[method]} if method in QUICK else {}
    result = solve_with(method, counts, 0.8, limits, parameters, resamples=3)
    model = model_of(counts, limits)
    assert result.policy.sum(axis=1) == pytest.approx(np.ones(5))
    assert result.method == method
    earned = evaluate(model, result.policy)
    assert result.value == pytest.approx(earned.value)
    assert earned.error(model, solve_lp(model).value) <= result.certificate.gap + 1e-8
    assert result.intervals.value[0] <= result.value <= result.intervals.value[1]


def test_the_certificate_of_the_plug_in_policy_is_zero():
    counts, limits = log_of()
    assert assess(counts, plug_in(counts, 0.8, limits), 0.8, limits, with_intervals=False).certificate.gap <= 1e-9


def test_a_mixture_as_one_policy_earns_the_same_in_the_log():
    counts, limits = log_of()
    mixture = pdca(counts, 0.8, limits, iterations=50)
    model = model_of(counts, limits)
    one = evaluate(model, one_policy(Lagrangian.empirical(counts, 0.8, as_limits(limits)), mixture))
    whole = mixture.evaluate(model)
    assert one.value == pytest.approx(whole.value, abs=1e-10)
    assert one.constraints == pytest.approx(whole.constraints, abs=1e-10)


def test_parameters_are_numbers_the_method_takes():
    assert parameters_of("pspi") == {"beta": float, "iterations": int, "step": float}
    assert read_parameters("pspi", {"beta": "2.5", "iterations": "7"}) == {"beta": 2.5, "iterations": 7}
    with pytest.raises(PdocrlError, match="pspi takes beta, iterations, step"):
        read_parameters("pspi", {"C": 3})
    with pytest.raises(PdocrlError, match="must be a whole number"):
        read_parameters("pspi", {"iterations": "many"})


def test_the_command_runs_a_baseline_and_refuses_what_is_not_for_it(run_cli):
    call = ["solve", "inventory", "--gamma", "0.95", "--limit", "stockout<=0.05", "--resamples", "0", "--json"]
    status, out, _ = run_cli(*call, "--method", "mo_spibb", "--parameter", "epsilon=0.5")
    assert status == 0
    found = json.loads(out)
    assert found["method"] == "mo_spibb"
    assert found["certificate"] > 1e-4  # it stays near the log, and so behind the best
    for more, words in (
        (["--method", "spib"], "spibb"),
        (["--method", "spibb"], "mo_spibb"),
        (["--method", "dpdl", "--parameter", "epsilon=1"], "dpdl takes"),
        (["--method", "dpdl", "--confidence", "0.9"], "--confidence"),
        (["--method", "lp", "--parameter", "x=1"], "--parameter"),
    ):
        status, out, err = run_cli(*call, *more)
        assert (status, out) == (2, "")
        assert words in " ".join(err.split())
