"""Callbacks of a training under a short name: `from pdocrl.callbacks import Evaluate`."""

from pdocrl.training.callbacks import Callback, Checkpoint, EarlyStopping, Evaluate, Progress, TrainingView

__all__ = ["Callback", "Checkpoint", "EarlyStopping", "Evaluate", "Progress", "TrainingView"]
