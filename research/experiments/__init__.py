"""The theory's figures: each measured on finite problems with known optima."""

from research.experiments.baselines import BASELINES_FREE, BASELINES_LIMITS, EXAMPLES_FIGURE, ICU
from research.experiments.cloning import CLONING
from research.experiments.linear import LINEAR
from research.experiments.lucky import LUCKY
from research.experiments.rate import RATE

EXPERIMENTS = {
    "cloning": CLONING,
    "rate": RATE,
    "linear": LINEAR,
    "lucky": LUCKY,
    "baselines": BASELINES_LIMITS,
    "baselines_free": BASELINES_FREE,
    "examples": EXAMPLES_FIGURE,
    "icu": ICU,
}
