"""What trained policies would earn and cost, from logged data alone, and certificates."""

from typing import Any

from pdocrl.callable_package import make_callable
from pdocrl.data.event_log import EventLog
from pdocrl.ope.ensemble import THOROUGH as THOROUGH
from pdocrl.ope.ensemble import EnsembleConfig as EnsembleConfig
from pdocrl.ope.estimate import METHODS as METHODS
from pdocrl.ope.estimate import estimate as estimate
from pdocrl.ope.judge import PolicyEstimates as PolicyEstimates
from pdocrl.ope.judge import judge as judge_log
from pdocrl.ope.prepare import Prepared as Prepared
from pdocrl.ope.result import OffPolicy as OffPolicy


def judge_policy(policy: Any, data: Any = None, *arguments: Any, **options: Any) -> OffPolicy | PolicyEstimates:
    """`judge.judge` for a log of discrete decisions (`EventLog`), `estimate` for a folder of `pdocrl train`."""
    if isinstance(data, EventLog):
        return judge_log(policy, data, *arguments, **options)
    return estimate(policy, data, *arguments, **options)


make_callable(__name__, "judge_policy")
