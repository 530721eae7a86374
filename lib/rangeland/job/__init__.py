"""The job file: its text, the values in it, its models, and the settings derived from it.

``job_file`` has the complete model, the ``..._section`` modules have its parts, and the other
modules each derive something from it.
"""

from rangeland.job.group_section import Group
from rangeland.job.job_file import Job
from rangeland.job.sink_section import Sink

__all__ = ["Group", "Job", "Sink"]
