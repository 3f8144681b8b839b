"""Runs beside submissions, in one-shot sandboxed processes, and imports `boundary` alone.

Nothing that is said here is believed: submitted code may have taken over the process.
"""

FILE = "submission.py"
"""The file that tracebacks name for the submission's source."""
