"""`pdocrl ope`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from tyro.conf import OmitArgPrefixes, UseAppendAction

from pdocrl.cli.log_columns import LogColumns, Names
from pdocrl.console import log, print_json, print_table
from pdocrl.errors import PdocrlError

if TYPE_CHECKING:
    from pdocrl.ope.result import DeciderReport, EstimatedSums, OffPolicy, OpeReport, PolicyReport


@dataclasses.dataclass(frozen=True)
class Estimation:
    """How a log of decisions is judged."""

    discount: float = 1.0
    """γ of the totals."""
    regressor: str = "linear"
    """Of fitted Q evaluation: linear, trees or network."""
    newer: str | None = None
    """Rows logged since the log; warnings say where they no longer look like it."""
    stream: bool = False
    """Read the log part by part, by the estimators that allow it; of itself beyond 3,000,000 rows."""


@dataclasses.dataclass(frozen=True)
class OfTraining:
    """How a training with continuous actions is judged."""

    compare: bool = False
    """Fitted Q evaluation beside the ensemble."""
    model_selection: bool = False
    """Learn the dynamics in two ways, which takes twice as long, and keep what predicts held-out episodes best; often
    shows more."""


_COLUMNS, _ESTIMATION, _TRAINING = LogColumns(), Estimation(), OfTraining()


def ope(
    policies: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="POLICY …")],
    /,
    *,
    data: str | None = None,
    limit: UseAppendAction[tuple[tuple[str, ...], ...]] = (),
    state_columns: Names = (),
    confidence: float = 0.95,
    out: Path | None = None,
    seed: int = 0,
    json: bool = False,
    columns: Annotated[LogColumns, OmitArgPrefixes] = _COLUMNS,
    estimation: Annotated[Estimation, OmitArgPrefixes] = _ESTIMATION,
    training: Annotated[OfTraining, OmitArgPrefixes] = _TRAINING,
) -> None:
    """Estimate what policies would gain and cost, from logged data alone, and whether they satisfy limits.

    Example:
        pdocrl ope new_rule rules:mine model.onnx --data visits.csv --limit "cost<=4" "P(cost>20)<=0.05"
        pdocrl ope policy/ table.csv --data log.parquet --step t --propensity p --decider who --json
        pdocrl ope runs/ballrun
        pdocrl ope runs/mine --data my.hdf5 --compare --json

    A policy is `module:name` of a function or classifier, a folder of `pdocrl solve` or of `pdocrl train` with discrete
    actions, an .onnx or .npz file, a table (.csv, .parquet) of probabilities per row or per state, or a column of the
    log that holds what it would have done. The log has a row for each decision, with named columns; every standard
    estimator is computed, and diagnostics decide which one the verdicts are made of.

    A folder of `pdocrl train` with continuous actions is judged on its own dataset: policies act in an ensemble of
    learned dynamics models, with intervals calibrated on episodes the models had not seen; written to ope.json.

    Args:
        policies: policies to judge.
        data: the log; of a training's folder its dataset, when it is no longer where it was.
        limit: on totals of an episode: "cost<=4", "P(cost>20)<=0.05", "CVaR90(cost)<=40".
        state_columns: what policies may look at, in order; default: all columns without another role.
        confidence: of intervals and verdicts.
        out: a file for the report: .html for a page with pictures, else JSON.
        seed: of sample splits and models.
        json: print one JSON object.
    """
    from pdocrl.ope import judge_policies
    from pdocrl.ope.entry import is_training
    from pdocrl.ope.result import OffPolicy

    if not policies:
        raise PdocrlError("no policy to judge; give at least one, such as module:name.")
    limits = [text for group in limit for text in group]
    if is_training(policies) and not limits and not state_columns:
        if out is not None or confidence != 0.95:
            raise PdocrlError(
                f"{policies[0]}: a training's estimates hold at 0.95 and are written to ope.json in its folder; --out "
                "and --confidence go with --data LOG --limit …."
            )
        told = judge_policies(list(policies), data, seed=seed, **dataclasses.asdict(training))
    elif data is None:
        raise PdocrlError(
            f"{', '.join(policies)}: no folder of `pdocrl train` (run.json); which log judges? Give --data LOG."
        )
    else:
        told = judge_policies(
            list(policies),
            data,
            limits,
            **columns.read_as(state_columns),
            confidence=confidence,
            **dataclasses.asdict(estimation) | {"stream": estimation.stream or None},
            seed=seed,
        )
    if isinstance(told, OffPolicy):
        print_json(told.as_dict()) if json else _print_training(told, training.compare)
        return
    if out is not None:
        _write(told, out)
    if json:
        from pdocrl.records import as_plain

        print_json(as_plain(told))
    else:
        _print_report(told)
    if out is not None:
        log(f"wrote {out}")


def _write(told: OpeReport, out: Path) -> None:
    """A page or JSON, by the file's name."""
    if out.suffix == ".html":
        from pdocrl.report.ope_page import write_ope_page

        write_ope_page(told, out)
    else:
        told.save(out)


def _print_report(told: OpeReport) -> None:
    percent = f"{100 * told.confidence:.10g} %"
    means = [f"reward [{percent}]", *(f"{cost} [{percent}]" for cost in told.costs)]
    logged = [told.logged, *told.deciders]
    print_table(
        ["decider", "episodes", *means, *told.limits],
        [[d.name, d.episodes, *_sample(d), *("yes" if ok else "no" for ok in d.within)] for d in logged],
        title=f"{told.log}: {told.rows:,} decisions in {told.episodes:,} episodes; propensities {told.propensities}",
    )
    print_table(
        ["policy", "by", *means, "verdict"],
        [[one.name, one.decides or "–", *_decided(one, len(told.costs)), one.verdict or "–"] for one in told.policies],
        title="policies, each by the estimator that decides",
    )
    for one in told.policies:
        print_table(
            ["estimator", *means, "effective episodes", "largest weight", "weights pass"],
            [
                [
                    e.estimator,
                    _with_interval(e.reward, e.reward_interval),
                    *(_with_interval(c, i) for c, i in zip(e.cost, e.cost_interval, strict=True)),
                    "–" if e.ess is None else f"{e.ess:.4g}",
                    "–" if e.largest_weight is None else f"{100 * e.largest_weight:.3g} %",
                    "yes" if e.usable else "",
                ]
                for e in one.estimates
            ],
            title=one.name,
        )
        for v in one.limits:
            hidden = "" if v.confounding is None else f"; hidden confounding overturns it from Γ = {v.confounding:.3g}"
            print(f"{one.name}: {v.limit}: {v.verdict} ({v.why}{hidden})")
        for warning in one.warnings:
            print(f"{one.name}: warning: {warning}")
        print(f"{one.name}: rests on: {'; '.join(one.assumptions)}")
    for warning in told.warnings:
        print(f"warning: {warning}")
    if told.choice is not None:
        chosen = told.choice
        print_table(
            ["policy", "compared with", "signal", f"difference [{percent}]"],
            [[c.policy, c.other, c.signal, _with_interval(c.difference, c.interval)] for c in chosen.comparisons],
            title="paired comparisons",
        )
        if told.limits:
            print(f"within all limits, jointly at {percent}: {', '.join(chosen.safe) or 'none'}")
        if chosen.best is not None and chosen.regret_upper is not None:
            print(f"best: {chosen.best}; another candidate gains at most {chosen.regret_upper:.4g} more, at {percent}")
        elif chosen.best is not None:
            print(f"best: {chosen.best}, of those that could be estimated; what others gain is not known")
        first = next((one.k for one in chosen.top if one.regret_upper == 0), None)
        if first is not None:
            print(f"the one that gains most is among {', '.join(chosen.ranking[:first])}, at {percent}")


def _decided(one: PolicyReport, costs: int) -> list[str]:
    if one.decides is None:
        return ["–"] * (1 + costs)
    e = one.of(one.decides)
    means = zip([e.reward, *e.cost], [e.reward_interval, *e.cost_interval], strict=True)
    return [_with_interval(value, interval) for value, interval in means]


def _sample(d: DeciderReport) -> list[str]:
    costs = zip(d.cost, d.cost_interval, strict=True)
    return [_with_interval(d.reward, d.reward_interval), *(_with_interval(c, i) for c, i in costs)]


def _print_training(result: OffPolicy, compare: bool) -> None:
    from pdocrl.ope.result import NARROWER

    print_table(
        [
            "agent",
            "cost limit",
            "seed",
            "reward [95 %]",
            "cost [95 %]",
            "normalised reward",
            "normalised cost",
            "verdict",
            "warnings",
        ],
        [
            [
                r.agent,
                _shown(r.cost_limit),
                r.seed,
                _with_interval(r.reward, r.reward_interval),
                "; ".join(_with_interval(c, i) for c, i in zip(r.cost, r.cost_interval, strict=True)),
                _with_interval(r.normalized_reward, r.normalized_reward_interval),
                _with_interval(r.normalized_cost, r.normalized_cost_interval),
                r.verdict,
                "; ".join([*r.warnings, *(["by logged behaviours alone"] if r.decides == "behaviours" else [])]),
            ]
            for r in result.runs
        ],
        title=f"{result.agent} on {result.data.name}: estimates from the data alone",
    )
    if any(run.bound_is_narrower for run in result.runs):
        print(NARROWER)
    for line in result.assumptions:
        print(line)
    told = result.calibration
    if told is None:
        return
    if compare:
        from pdocrl.ope import METHODS

        print_table(
            ["cost limit", "seed", "signal", *METHODS],
            [
                [_shown(r.cost_limit), r.seed, signal, *(_of(r.by_method.get(name), k) for name in METHODS)]
                for r in result.runs
                for k, signal in enumerate(told.factor)
            ],
            title="every method; fitted Q evaluation has no interval, and judges no policy with memory",
        )
    coverage = ", ".join(f"{name} {100 * share:.0f} %" for name, share in told.coverage_left_out.items())
    print(
        f"calibrated on {told.groups} groups of episodes the models had not seen; intervals made from the other "
        f"groups held the truth of: {coverage}"
    )


def _of(told: EstimatedSums | None, k: int) -> str:
    if told is None:
        return "–"
    if k == 0:
        return _with_interval(told.reward, told.reward_interval)
    return _with_interval(told.cost[k - 1], told.cost_interval[k - 1] if told.cost_interval else None)


def _with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if interval is None else f"{value:.4g} [{interval[0]:.4g}, {interval[1]:.4g}]"


def _shown(limit: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in limit) or "–"
