"""The operator, sensor and trigger of the DAGs in this folder.

Airflow and the ``rangeland`` command share no Python environment: the command runs as a process,
in the environment that has Spark, and its result is one line of JSON. Nothing here imports
``rangeland`` or PySpark, so a DAG file parses in an environment that has neither.
"""
