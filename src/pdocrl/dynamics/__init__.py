"""The dynamics model: a probabilistic ensemble learned from logged transitions, and rollouts that draw from it."""
