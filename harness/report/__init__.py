"""What a run found, as values, as files and as a table on a terminal. Imports no torch."""

from harness.report.files import ResultLines, write_report
from harness.report.run import PropertySummary, Report, case_file_name
from harness.report.units import Finding, UnitResult, strongest, worst

__all__ = [
    "Finding",
    "PropertySummary",
    "Report",
    "ResultLines",
    "UnitResult",
    "case_file_name",
    "strongest",
    "worst",
    "write_report",
]
