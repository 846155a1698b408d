"""The theory's figures: each measured on finite problems with known optima."""

from research.experiments.cloning import CLONING
from research.experiments.linear import LINEAR
from research.experiments.lucky import LUCKY
from research.experiments.rate import RATE
from research.experiments.rivals import EXAMPLES_FIGURE, ICU, RIVALS_FREE, RIVALS_LIMITS

EXPERIMENTS = {
    "cloning": CLONING,
    "rate": RATE,
    "linear": LINEAR,
    "lucky": LUCKY,
    "rivals": RIVALS_LIMITS,
    "rivals_free": RIVALS_FREE,
    "examples": EXAMPLES_FIGURE,
    "icu": ICU,
}
