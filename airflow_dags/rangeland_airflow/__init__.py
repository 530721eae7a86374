"""What the DAGs beside this package are made of: an operator, a sensor and its trigger.

Airflow and the ``rangeland`` command share no Python: the command runs in the environment
that has Spark, as a process, and its answer is one line of JSON. So nothing here imports
``rangeland`` or PySpark, and a DAG file parses in an environment that has neither.
"""
