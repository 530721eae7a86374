"""Lands what a job file asks for: ``spark-submit jobs/land.py orders.yaml``."""

import sys

import rangeland


def main() -> int:
    job = rangeland.Job.load(sys.argv[1])
    result = rangeland.land(job, rangeland.open_spark(f"rangeland {job.job}"))
    print(f"{job.job}: {result.state}, {result.counts.landed} records")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except rangeland.RangelandError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
