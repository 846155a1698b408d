"""The theory's figures: each measured on finite problems with known optima."""

from pdocrl.theory.experiments.cloning import CLONING
from pdocrl.theory.experiments.lucky import LUCKY
from pdocrl.theory.experiments.rate import RATE

EXPERIMENTS = {"cloning": CLONING, "rate": RATE, "lucky": LUCKY}
