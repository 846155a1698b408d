"""What policies would gain and cost, from logged data alone, and certificates."""

from pdocrl.callable_package import make_callable
from pdocrl.ope.ensemble import SELECTION as SELECTION
from pdocrl.ope.ensemble import EnsembleConfig as EnsembleConfig
from pdocrl.ope.entry import judge_policies as judge_policies
from pdocrl.ope.estimate import METHODS as METHODS
from pdocrl.ope.estimate import estimate as estimate
from pdocrl.ope.prepare import Prepared as Prepared
from pdocrl.ope.records import OpeReport as OpeReport
from pdocrl.ope.result import OffPolicy as OffPolicy

make_callable(__name__, "judge_policies")
