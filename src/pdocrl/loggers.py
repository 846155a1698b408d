"""Metric loggers under a short name: `from pdocrl.loggers import History`."""

from pdocrl.training.loggers import CSVLogger, History, JSONLinesLogger, Logger, TensorBoardLogger, WandBLogger

__all__ = ["CSVLogger", "History", "JSONLinesLogger", "Logger", "TensorBoardLogger", "WandBLogger"]
