"""The job file: its text, the values in it, its models, and the settings derived from it.

``job_file`` has the whole model; the other modules are its parts, or derive something from it.
"""

from rangeland.job.job_file import Group, Job, Sink

__all__ = ["Group", "Job", "Sink"]
