"""Lands every hour of one job in a pod, with the image of ``jobs/kubernetes/Dockerfile``.

An example to copy into the DAGs folder: it needs the provider of Airflow for Kubernetes
(apache-airflow-providers-cncf-kubernetes), and is ignored where it is. The pod runs Spark in
itself; for executors of their own, replace the command by that of ``jobs/kubernetes/pod.yaml``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG, CronDataIntervalTimetable
from kubernetes.client import models as k8s

with DAG(
    dag_id="land_in_pod",
    description="Lands each hour of a log in its Delta table, in a pod",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("5 * * * *", timezone="UTC"),
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=True,
    max_active_runs=1,
):
    KubernetesPodOperator(
        task_id="land",
        name="rangeland-orders",
        namespace="default",
        image="rangeland",
        # A backfill of the hour, so that a run that is cleared asks for the same records again.
        arguments=[
            "rangeland",
            "backfill",
            "/etc/rangeland/orders.yaml",
            "--from={{ data_interval_start }}",
            "--until={{ data_interval_end }}",
        ],
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
            requests={"cpu": "1", "memory": "2Gi"}, limits={"memory": "2Gi"}
        ),
        retries=3,
        retry_delay=timedelta(minutes=5),
        get_logs=True,
    )
