"""A folder as a page, `report("runs/ballrun")`: of a training, a benchmark or a solved log; and its tables as files.

rows ─▶ Results ─▶ findings, tables, pictures ─▶ page
"""

from pdocrl.callable_package import make_callable
from pdocrl.report.page import report
from pdocrl.report.record import Results, read_results
from pdocrl.report.tables import make_tables

__all__ = ["Results", "make_tables", "read_results", "report"]

make_callable(__name__, "report")
