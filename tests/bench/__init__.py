"""The benchmark: this project beside the alternatives, in turn, on one machine.

Run it from the root of the repository, with the extra ``bench`` installed:

    python -m tests.bench --quick              # 200,000 records, some minutes, for a look
    python -m tests.bench                      # 4,000,000 records, about half an hour
    python -m tests.bench --codecs lz4 --rounds 3 --parts warm
    python -m tests.bench --parts fixed,survey --quick

It starts a Kafka broker of its own and a Spark session with Delta, prints tables, and
writes ``bench-results/<time>.json`` (every sample, the machine, the versions, the load
average) and ``bench-results/<time>.svg``. It is never part of the tests and never timed by
them. On a machine that does other work only the ratios mean anything, and those little: the
load average is printed with every part.

Parts: ``warm`` (all sides in one session, in turn, first round dropped), ``cold`` (a fresh
Spark process for each landing), ``cores`` (one partition on one and on two cores),
``memory`` (a task's peak by the size of its slice), ``fixed`` (runs with nothing or one
record to land), ``survey`` (1,000 partitions).

Every landing is counted afterwards, outside the time: a side that lands another number of
rows than there are records ends the benchmark.
"""
