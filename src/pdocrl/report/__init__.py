"""A training as a page, `report("runs/ballrun")`, and its pictures one by one, `figures.learning(record)`."""

from pdocrl.report.page import report
from pdocrl.report.record import Record, read_record

__all__ = ["Record", "read_record", "report"]
