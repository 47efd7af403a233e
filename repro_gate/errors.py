"""The one error type that people see: what is wrong, where, and what to do next.

Raised where the cause is known, printed in one place (`cli.main`). Imports nothing of the package.
"""

from __future__ import annotations


class GateError(Exception):
    """An error meant for a person. `exit_code` follows the table in the README (2 usage, 3 inconclusive).

    `reason_id` is the stable name of the error in `report.json` (`reasons[].id`), `remedy` one sentence that says what to do.
    """

    exit_code = 2

    def __init__(self, message: str, *, remedy: str = "", reason_id: str = "usage") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.reason_id = reason_id

    def diagnostics(self) -> str:
        """The lines to print: the message, then the remedy where there is one."""
        return self.message + (f"\n  remedy: {self.remedy}" if self.remedy else "")


class UsageError(GateError):
    """Bad arguments or a bad spec: exit code 2."""


class Inconclusive(GateError):
    """The question could not be answered (crash, timeout, no trace, missing device): exit code 3."""

    exit_code = 3

    def __init__(self, message: str, *, remedy: str = "", reason_id: str = "inconclusive") -> None:
        super().__init__(message, remedy=remedy, reason_id=reason_id)
