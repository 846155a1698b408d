"""The problems all methods are measured on, and the measuring."""

import importlib.util

import gymnasium
import numpy as np
import pytest

from pdocrl.errors import PdocrlError
from pdocrl.tabular.cmdp import evaluate, occupancy, plan
from pdocrl.tabular.solvers.exact import solve_lp
from research.experiments.baselines import (
    BASELINES_LIMITS,
    draw_settings,
    draw_slopes,
    error_table,
    make_table,
    relative,
    slope,
    slope_table,
)
from research.families import FAMILIES, frozen_lake, icu_sepsis, make_case
from research.measure import (
    EXAMPLES,
    ITERATIONS,
    Job,
    Trial,
    jobs_of,
    measure,
    measure_all,
    read_trials,
    summarise,
    tasks_of,
)
from research.methods import MEASURED

SMALL = [name for name in FAMILIES if name != "icu_sepsis"]


@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize("coverage", ["full", "partial"])
@pytest.mark.parametrize("family", SMALL)
def test_the_optimum_is_right_and_covered_as_the_case_says(family, coverage, limited):
    case = make_case(family, coverage, limited, seed=1)
    assert evaluate(case.cmdp, case.best).error(case.cmdp, case.optimum) <= 1e-8
    assert case.optimum == pytest.approx(solve_lp(case.cmdp).value, abs=1e-8)
    assert case.mu_D.sum() == pytest.approx(1)
    mu = occupancy(case.cmdp, case.best)
    assert (mu <= case.C_star * case.mu_D + 1e-9).all()
    if coverage == "full":
        assert case.mu_D.min() > 0
    elif family not in EXAMPLES:
        assert case.C_star <= 2 + 1e-9


def test_the_lake_is_gymnasiums():
    """Its holes and goal end the episode on arrival; ours after one more step, which pays or costs."""
    known = gymnasium.make("FrozenLake-v1").unwrapped.P
    ours = frozen_lake().P.toarray().reshape(16, 4, 16)
    for s in (0, 1, 2, 3, 4, 6, 8, 9, 10, 13, 14):
        for a in range(4):
            expected = np.zeros(16)
            for probability, to, reward, over in known[s][a]:
                expected[to] += probability
                assert over == (to in {5, 7, 11, 12, 15})
                assert reward == (to == 15)
            assert ours[s, a] == pytest.approx(expected)


def test_the_sepsis_simulator_has_the_returns_its_authors_give():
    """Random 0.78, clinicians 0.78, optimal 0.88, undiscounted."""
    if importlib.util.find_spec("icu_sepsis") is None:
        pytest.skip("icu_sepsis is not installed")
    cmdp, mu_D = icu_sepsis(gamma=0.99999)
    clinicians = mu_D / np.maximum(mu_D.sum(axis=1, keepdims=True), 1e-300)
    for pi, known in ((np.full(cmdp.r.shape, 1 / 25), 0.78), (clinicians, 0.78), (plan(cmdp, cmdp.r).actions, 0.88)):
        assert evaluate(cmdp, pi).value / (1 - cmdp.gamma) == pytest.approx(known, abs=0.006)


def test_two_processes_measure_what_one_does_and_the_trials_kept_give_the_same_summary(tmp_path, monkeypatch):
    monkeypatch.setattr("research.measure.ITERATIONS", dict.fromkeys(ITERATIONS, 5))

    def numbers(rows):
        return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]

    keep = tmp_path / "trials.csv"
    one = numbers(measure_all(["costly_reference"], logs=2, sizes=[1000]))
    assert one == numbers(measure_all(["costly_reference"], logs=2, jobs=2, sizes=[1000], keep=keep))
    assert one == numbers(summarise(read_trials([keep, keep])))
    assert {row["method"] for row in one} == {name for name, baseline in MEASURED.items() if baseline.method.limits}
    assert all(row["setting"] in {"theory", "best of grid"} and row["logs"] == 2 for row in one)


def test_every_method_runs_on_a_family_with_and_without_limits():
    for limited in (True, False):
        trials = [t for task in tasks_of([Job("lucky_bandit", "partial", limited, 300, 0)]) for t in measure(task)]
        expected = {
            name for name, baseline in MEASURED.items() if (baseline.method.limits if limited else baseline.free)
        }
        assert {trial.method for trial in trials} == expected
        assert all(np.isfinite(trial.loss) and trial.violation >= 0 for trial in trials)


def test_the_best_setting_is_the_best_on_average_and_the_theorys_stays():
    job = Job("random", "full", True, 100, 0)
    losses = {0: (0.5, 0.3), 1: (0.1, 0.6), 2: (0.2, 0.3)}  # by setting, for two logs
    trials = [Trial(job._replace(seed=i), "coral", k, f"C {k}", losses[k][i], 0.1, 1.0) for k in losses for i in (0, 1)]
    theory, best = summarise(trials)
    assert (theory["setting"], theory["error"]) == ("theory", 0.4)
    assert (best["parameters"], best["error"], best["violation"]) == ("C 2", 0.25, 0.1)
    assert best["high"] == pytest.approx(0.25 + 12.706 * 0.05, rel=1e-3)  # Student, one degree of freedom


def test_sepsis_is_measured_on_the_clinicians_log_alone():
    assert {job.coverage for job in jobs_of(["icu_sepsis"], 1)} == {"partial"}
    assert {job.n for job in jobs_of(["icu_sepsis"], 1)} == {10_000, 100_000, 1_000_000}


def fake_rows():
    return [
        {
            "family": family,
            "coverage": coverage,
            "limits": "yes",
            "method": method,
            "setting": setting,
            "n": n,
            "logs": 3,
            "parameters": "",
            "error": scale * n**-0.5,
            "low": 0.0,
            "high": 0.1,
            "loss": 0.0,
            "violation": 0.0,
            "broken": 0.0,
            "seconds": 1.0,
        }
        for family in ("random", "garnet")
        for coverage in ("full", "partial")
        for setting in ("theory", "best of grid")
        for method, scale in (("pdocrl", 1.0), ("behaviour_cloning", 4.0))
        for n in (100, 1000)
    ]


def test_errors_are_a_share_of_what_imitation_loses():
    shares = {(row["method"], row["n"]): row["error"] for row in relative(fake_rows())}
    assert shares[("pdocrl", 100)] == pytest.approx(1 / 4)
    assert shares[("behaviour_cloning", 1000)] == pytest.approx(1)


def test_a_root_has_slope_one_half_and_one_point_none():
    assert slope(fake_rows()[:2]).value == pytest.approx(-0.5)
    assert np.isnan(slope(fake_rows()[:1]).value)


def test_the_interval_of_a_slope_holds_it_19_times_in_20():
    """Errors of 20 logs at three sizes, whose mean falls as a root; normal, a fifth of their mean apart."""
    rng = np.random.default_rng(0)
    sizes = np.array([100, 1000, 10_000])
    held = []
    for _ in range(400):
        draws = sizes**-0.5 * (1 + 0.2 * rng.standard_normal((20, 3)))
        half = 2.093 * draws.std(axis=0, ddof=1) / np.sqrt(20)
        rows = [{"n": n, "error": e, "high": e + h} for n, e, h in zip(sizes, draws.mean(axis=0), half, strict=True)]
        found = slope(rows)
        held.append(abs(found.value + 0.5) <= found.half)
    assert 0.92 <= np.mean(held) <= 0.98


def test_the_table_has_a_line_per_method_and_place_and_the_claims(tmp_path):
    table = make_table("baselines", "title", fake_rows())
    assert len(table.rows) == (2 + 1) * 2 * 2
    assert all(len(row) == len(table.columns) for row in table.rows)
    first = [cell.text for cell in table.rows[0]]
    assert first[:7] == ["all", "full", "PDOCRL", "any π_c", "yes", "no", "−1/2"]
    BASELINES_LIMITS.draw(fake_rows(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


@pytest.mark.parametrize("draw", [draw_settings, draw_slopes])
def test_settings_and_slopes_are_drawn_also_where_a_method_has_one_size_or_one_setting(draw, tmp_path):
    rows = fake_rows()
    few = [row for row in rows if row["method"] == "behaviour_cloning" or row["setting"] == "theory"]
    for name, shown in (("all", rows), ("few", few), ("one", [row for row in rows if row["n"] == 1000])):
        draw(shown, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_the_summaries_have_a_line_per_method_best_first_with_claims_beside_slopes():
    errors, slopes = (make("baselines_free", "title", fake_rows()) for make in (error_table, slope_table))
    for table in (errors, slopes):
        assert [row[0].text for row in table.rows] == ["PDORL", "behaviour cloning"]
        assert all(len(row) == len(table.columns) for row in table.rows)
    names = [" ".join(column) for column in errors.columns]
    assert errors.rows[0][names.index("partial, n = 1,000: best")].text.startswith("0.25 ± ")
    assert [cell.text for cell in slopes.rows[0][1:5]] == ["any π_c", "yes", "no", "−1/2"]


def test_every_method_has_had_a_log_before_any_has_the_next():
    tasks = tasks_of(jobs_of(["random"], logs=8, sizes=[100, 200], limited=True, skip=1))
    seeds = [task.job.seed for task in tasks]
    assert seeds == sorted(seeds)
    assert seeds[0] == 1
    assert [task.methods for task in tasks_of([tasks[0].job], only=("plug_in", "fqi"))] == [("plug_in",)]
    names = [name for task in tasks if task.job == tasks[0].job for name in task.methods]
    assert sorted(names) == sorted(name for name, baseline in MEASURED.items() if baseline.method.limits)


def test_measuring_stops_when_the_time_is_up(capsys):
    rows = measure_all(["costly_reference"], logs=50, sizes=[100], minutes=0.0)
    assert {row["logs"] for row in rows} == {1}
    assert "1 of 100 parts" in capsys.readouterr().err


def test_an_unknown_family_is_named():
    with pytest.raises(PdocrlError, match="garnett"):
        make_case("garnett", "full", True, 0)
