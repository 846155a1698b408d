"""What trained policies would earn and cost, from logged data alone."""

from pdocrl.callable_package import make_callable
from pdocrl.ope.estimate import METHODS as METHODS
from pdocrl.ope.estimate import Prepared as Prepared
from pdocrl.ope.estimate import estimate as estimate
from pdocrl.ope.result import OffPolicy as OffPolicy

make_callable(__name__, "estimate")
