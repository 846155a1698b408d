"""The theory's figures: each measured on finite problems with known optima."""

from pdocrl.theory.experiments.cloning import CLONING
from pdocrl.theory.experiments.lucky import LUCKY
from pdocrl.theory.experiments.rate import RATE
from pdocrl.theory.experiments.rivals import EXAMPLES_FIGURE, ICU, RIVALS_FREE, RIVALS_LIMITS

EXPERIMENTS = {
    "cloning": CLONING,
    "rate": RATE,
    "lucky": LUCKY,
    "rivals": RIVALS_LIMITS,
    "rivals_free": RIVALS_FREE,
    "examples": EXAMPLES_FIGURE,
    "icu": ICU,
}
