"""Waits for every hour of one job in a pod, and lands it in another one, with the image of
``jobs/kubernetes/Dockerfile``.

An example to copy into the DAGs folder: it needs the provider of Airflow for Kubernetes
(apache-airflow-providers-cncf-kubernetes), and is ignored where it is. The pod that lands runs
Spark in itself; for executors of their own, replace its command by that of
``jobs/kubernetes/pod.yaml``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG, CronDataIntervalTimetable
from kubernetes.client import models as k8s

JOB_FILE = "/etc/rangeland/orders.yaml"
# Once a minute, until the logs have reached the time. Exit 75 is "not yet", or brokers that are
# down; any other error would not pass by waiting.
WAIT = f"""
until rangeland reached {JOB_FILE} --until="$1" --idle-after=600
do
    code=$?
    [ $code -eq 75 ] || exit $code
    sleep 60
done
"""


def pod(task_id: str, arguments: list[str], cpu: str, memory: str) -> KubernetesPodOperator:
    return KubernetesPodOperator(
        task_id=task_id,
        name=f"rangeland-orders-{task_id}",
        namespace="default",
        image="rangeland",
        arguments=arguments,
        env_vars=[
            k8s.V1EnvVar(
                name="KAFKA_PASSWORD",
                value_from=k8s.V1EnvVarSource(
                    secret_key_ref=k8s.V1SecretKeySelector(name="kafka", key="password")
                ),
            )
        ],
        volumes=[
            k8s.V1Volume(name="jobs", config_map=k8s.V1ConfigMapVolumeSource(name="rangeland-jobs"))
        ],
        volume_mounts=[k8s.V1VolumeMount(name="jobs", mount_path="/etc/rangeland")],
        container_resources=k8s.V1ResourceRequirements(
            requests={"cpu": cpu, "memory": memory}, limits={"memory": memory}
        ),
        # They follow every exit code that is not 0, so what will fail again is repeated, too.
        retries=3,
        retry_delay=timedelta(minutes=5),
        execution_timeout=timedelta(days=1),
        get_logs=True,
    )


with DAG(
    dag_id="land_in_pod",
    description="Lands each hour of a log in its Delta table, in a pod",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=True,
    max_active_runs=1,
):
    # If an hour were landed before its end, its last records would belong to no run.
    wait = pod("wait", ["sh", "-c", WAIT, "wait", "{{ data_interval_end }}"], "100m", "512Mi")
    # A backfill of the hour, so that a run that is cleared asks for the same records again.
    bounds = ["--from={{ data_interval_start }}", "--until={{ data_interval_end }}"]
    land = pod("land", ["rangeland", "backfill", JOB_FILE, *bounds], "1", "2Gi")
    wait >> land
