"""Limits on the tail of an episode's cost, for finite states: exact programs on states that remember what was spent."""

from pdocrl.tabular.tails.policy import TailPolicy, load
from pdocrl.tabular.tails.result import TailResult
from pdocrl.tabular.tails.solve import solve_tails

__all__ = ["TailPolicy", "TailResult", "load", "solve_tails"]
