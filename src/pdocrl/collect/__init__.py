"""Safe-RL experts that make a dataset of one's own: `pdocrl.collect("CarRun")`."""

from pdocrl.callable_package import make_callable
from pdocrl.collect.pipeline import collect as collect

make_callable(__name__, "collect")
