"""Where Adam's step was before it had a file of its own; for code that still imports it from here."""

from pdocrl.nn.optimise import adam_step

__all__ = ["adam_step"]
