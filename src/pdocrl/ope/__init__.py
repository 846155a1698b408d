"""What policies would gain and cost, from logged data alone, and certificates."""

from pdocrl.callable_package import make_callable
from pdocrl.ope.ensemble.models import SELECTION as SELECTION
from pdocrl.ope.ensemble.models import EnsembleConfig as EnsembleConfig
from pdocrl.ope.ensemble.of_training import METHODS as METHODS
from pdocrl.ope.ensemble.of_training import estimate as estimate
from pdocrl.ope.ensemble.prepare import Prepared as Prepared
from pdocrl.ope.entry import judge_policies as judge_policies
from pdocrl.ope.result import OffPolicy as OffPolicy
from pdocrl.ope.result import OpeReport as OpeReport

make_callable(__name__, "judge_policies")
