"""The job file: its text, the words in it, its models, and what connections need of it.

``document`` has the whole; the rest of this folder is what it is made of, and made into.
"""

from rangeland.job.job_file import Group, Job, Sink

__all__ = ["Group", "Job", "Sink"]
