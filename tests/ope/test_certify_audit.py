"""`pdocrl certify --audit`: what a file of episodes proves, in numbers, in words and in a picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest

from pdocrl.ope.certify.audit import audit_statement, play_until_shown
from pdocrl.ope.certify.certificate import PolicyCertificate, _edges, _shares
from pdocrl.records import read_record

Cli = Callable[..., tuple[int, str, str]]


def parquet(path: Path, sql: str) -> Path:
    duckdb.sql(f"COPY ({sql}) TO '{path}'")
    return path


def csv(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_59_episodes_without_cost_show_that_at_most_5_percent_are_over(tmp_path: Path, run_cli: Cli) -> None:
    """.95^59 < .05: the exact binomial bound."""
    file = parquet(tmp_path / "episodes.parquet", "SELECT 0.0 AS cost, 1.5 AS reward FROM range(59)")
    status, out, err = run_cli("certify", "--audit", str(file), "--cost-limit", "10", "--json")
    told = json.loads(out)
    assert (status, err) == (0, "")
    assert told["share_over_upper"] == pytest.approx(1 - 0.05 ** (1 / 59))
    assert (told["verdict"], told["mean_cost_upper"]) == ("cannot be shown", None)  # of the mean nothing is known
    assert "nobody stated" in told["statements"][0]["assumption"]
    assert "--largest-cost" in told["statements"][0]["sentence"]
    stated = ("--largest-cost", "100", "--json")
    told = json.loads(run_cli("certify", "--audit", str(file), "--cost-limit", "10", *stated)[1])
    assert (told["verdict"], told["confidence"]) == ("within", 0.95)
    assert 0 < told["mean_cost_upper"] <= 10
    assert "95 % sure" in told["statements"][0]["sentence"]


def test_the_verdict_follows_the_worst_of_several_costs(tmp_path: Path, run_cli: Cli) -> None:
    file = csv(tmp_path / "two.csv", "cost_speed,cost_wall\n" + "0,9\n" * 100)
    options = ("certify", "--audit", str(file), "--largest-cost", "20", "20", "--json")
    told = json.loads(run_cli(*options, "--cost-limit", "10,5")[1])
    assert [one["verdict"] for one in told["statements"]] == ["within", "over"]
    assert told["verdict"] == "over"
    assert told["mean_cost_upper"] == told["statements"][1]["mean_cost_upper"]
    assert json.loads(run_cli(*options, "--cost-limit", "10", "15")[1])["verdict"] == "within"


def test_episodes_of_several_policies_are_not_taken_for_one_in_silence(tmp_path: Path, run_cli: Cli) -> None:
    """One never costs and one always breaks the limit: their mean keeps it."""
    file = csv(tmp_path / "both.csv", "run,cost\n" + "0,0\n1,12\n" * 100)
    options = ("--cost-limit", "10", "--largest-cost", "20", "--json")
    told = json.loads(run_cli("certify", "--audit", str(file), *options)[1])
    assert told["verdict"] == "within"
    assert "episodes of 2 policies" in told["notes"][0]


def test_too_few_episodes_show_nothing_and_say_how_many_would(tmp_path: Path, run_cli: Cli) -> None:
    file = csv(tmp_path / "few.csv", "cost\n" + "3\n" * 5)
    status, out, _ = run_cli("certify", "--audit", str(file), "--cost-limit", "10", "--largest-cost", "100")
    assert status == 0
    assert "cannot be shown" in out
    told = json.loads(
        run_cli("certify", "--audit", str(file), "--cost-limit", "10", "--largest-cost", "100", "--json")[1]
    )
    needed = told["statements"][0]["episodes_needed"]
    assert needed > 5
    assert f"about {needed} episodes" in out
    enough = csv(tmp_path / "enough.csv", "cost\n" + "3\n" * needed)
    again = run_cli("certify", "--audit", str(enough), "--cost-limit", "10", "--largest-cost", "100", "--json")[1]
    assert json.loads(again)["verdict"] == "within"


def test_the_certificate_is_kept_with_its_picture(tmp_path: Path, run_cli: Cli) -> None:
    file = csv(tmp_path / "e.csv", "cost\n" + "3\n4\n" * 40)
    status, _, err = run_cli("certify", "--audit", str(file), "--cost-limit", "10", "--out", str(tmp_path / "kept"))
    assert status == 0
    assert "certificate.png" in err
    assert (tmp_path / "kept" / "certificate.png").read_bytes().startswith(b"\x89PNG")
    assert read_record(tmp_path / "kept" / "certificate.json", PolicyCertificate).statements[0].mean_cost == 3.5


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("e.csv", "cost\n1\n\n2\n", "episode 2 is empty"),
        ("e.csv", "cost\n1\n-2\n", "episode 2 is -2"),
        ("e.csv", "cost\n1\nnan\n", "episode 2 is nan"),
        ("e.csv", "cost\n1\nmuch\n", "episode 2 is 'much'"),
        ("e.csv", "reward\n1\n", "no column `cost`"),
        ("e.csv", "cost\n", "no episodes"),
        ("e.parquet", "hello", "cannot be read"),
        ("e.json", "{}", ".parquet or .csv"),
        ("e.csv", "cost_a,cost_b\n1,2\n", "1 numbers in --cost-limit for 2 costs"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, run_cli: Cli, name: str, text: str, says: str) -> None:
    file = csv(tmp_path / name, text)
    status, out, err = run_cli(
        "certify", "--audit", str(file), "--cost-limit", "10", "--out", str(tmp_path / "kept"), "--json"
    )
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert str(file) in err
    assert not (tmp_path / "kept").exists()


def test_what_is_missing_is_asked_for(tmp_path: Path, run_cli: Cli) -> None:
    file = csv(tmp_path / "e.csv", "cost\n1\n")
    for options, says in (
        ((), "--audit"),
        (("--audit", str(file)), "--cost-limit"),
        (("--audit", str(tmp_path / "no.csv"), "--cost-limit", "1"), "no such file"),
        (("--audit", str(file), "--cost-limit", "-1"), "at least 0"),
        (("--audit", str(file), "--cost-limit", "1", "--confidence", "1.5"), "--confidence"),
        (("--audit", str(file), "--cost-limit", "1", "--largest-cost", ".5"), "largest cost"),
    ):
        status, out, err = run_cli("certify", *options)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert says in err


def test_stopping_early_clears_at_most_5_percent_of_policies_over_their_limit() -> None:
    """A disaster of 100 in 10.5 % of episodes, mean 10.5, limit 10, looked at again and again up to 200 episodes."""
    rng = np.random.default_rng(0)
    cleared = 0
    for _ in range(400):
        costs = 100.0 * (rng.random((200, 1)) < 0.105)
        seen = play_until_shown(lambda first, n, c=costs: c[first : first + n], 200, [10.0], 0.95, [100.0])
        cleared += audit_statement(seen[:, 0], 10, 0.95, 100, policy="p", stopped=True).verdict == "within"
    assert cleared / 400 <= 0.05


def test_a_clear_case_needs_few_of_the_episodes_it_may_have() -> None:
    played = []

    def play(first: int, count: int) -> np.ndarray:
        played.append((first, count))
        return np.zeros((count, 1))

    costs = play_until_shown(play, 1000, [10.0], 0.95, [50.0])
    assert len(costs) < 60
    assert [first for first, _ in played] == np.cumsum([0, *(count for _, count in played[:-1])]).tolist()
    assert len(play_until_shown(play, 100, [10.0], 0.95, [50.0], fixed=True)) == 100


def test_no_bar_of_the_picture_is_on_both_sides_of_the_limit() -> None:
    """Costs of exactly the limit keep it; whole costs get bins of whole width, and none is lost."""
    rng = np.random.default_rng(0)
    for limit, costs in ((10.0, rng.integers(0, 60, 80).astype(float)), (7.3, rng.gamma(2, 8, 80)), (0.0, np.zeros(9))):
        edges = _edges(limit, 1.08 * max(limit, costs.max(), 1e-9), [costs])
        shares = _shares(costs, edges)
        assert np.isclose(edges, limit).any()
        assert shares.sum() == pytest.approx(1)
        assert shares[edges[1:] <= limit + 1e-9].sum() == pytest.approx((costs <= limit).mean())


def test_limits_on_tails_are_judged_and_planned(tmp_path: Path, run_cli: Cli) -> None:
    file = tmp_path / "episodes.csv"
    file.write_text("cost\n" + "0\n" * 153)
    limits = ("--limits", "P(cost>20)<=0.05", "CVaR50(cost)<=40", "--largest-cost", "100")
    told = json.loads(run_cli("certify", "--audit", str(file), *limits, "--json")[1])
    assert [one["verdict"] for one in told["statements"]] == ["within", "within"]
    assert told["statements"][0]["limit"]["upper"] == pytest.approx(1 - 0.05 ** (1 / 153))
    assert "Satisfies P(cost>20)<=0.05" in run_cli("certify", "--audit", str(file), *limits)[1]
    planned = run_cli("certify", "--plan", "--limit", "P(cost>20)<=0.05", "--expected", "0.01", "--json")[1]
    assert json.loads(planned)["plans"][0]["episodes"] == 153
    for options, remedy in (
        (("--plan",), "give --limits"),
        (("--plan", "--limits", "max(cost)<=1"), "P(cost>1)<=0.01"),
        (("--audit", str(file), "--limits", "max(cost)<=1"), "P(cost>"),
        (("--episodes", "5", "--limits", "cost<=1"), "--audit FILE"),
    ):
        status, _, err = run_cli("certify", *options)
        assert (status, remedy in err) == (2, True)
