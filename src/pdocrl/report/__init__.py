"""A training as a page, `report("runs/ballrun")`, and its pictures one by one, `figures.learning(record)`.

A benchmark as a page: `write_suite_page(folder)`.
"""

from pdocrl.report.page import report
from pdocrl.report.record import Record, read_record
from pdocrl.report.suite import write_suite_page

__all__ = ["Record", "read_record", "report", "write_suite_page"]
