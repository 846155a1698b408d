"""Finite states and actions: a log to a certified policy, and the paper's theory as running code.

counts = count_log("log.parquet")
result = solve(counts, gamma=0.95, limits=["cost<=0.1"])
"""

from pdocrl.limits import Limit
from pdocrl.tabular.api import solve
from pdocrl.tabular.cmdp import CMDP, evaluate, extract, occupancy, random_cmdp, values
from pdocrl.tabular.counts import Counts, merge
from pdocrl.tabular.inference.sensitivity import sensitivity
from pdocrl.tabular.io.logs import count_log, counts_with_ray
from pdocrl.tabular.result.policy import TabularPolicy, load
from pdocrl.tabular.result.result import Result
from pdocrl.tabular.solvers.lagrangian import Certificate, Lagrangian, Point, Sets, certify

__all__ = [
    "CMDP",
    "Certificate",
    "Counts",
    "Lagrangian",
    "Limit",
    "Point",
    "Result",
    "Sets",
    "TabularPolicy",
    "certify",
    "count_log",
    "counts_with_ray",
    "evaluate",
    "extract",
    "load",
    "merge",
    "occupancy",
    "random_cmdp",
    "sensitivity",
    "solve",
    "values",
]
