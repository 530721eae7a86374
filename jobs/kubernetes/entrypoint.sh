#!/bin/sh
# What Spark asks of an image on Kubernetes: `driver ARGUMENTS...` and `executor`. Anything else is a command, such as
# `rangeland run orders.yaml`.
set -eu
case "${1:-}" in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    # Spark passes the JVM's options as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on.
    set --
    number=0
    while eval "[ -n \"\${SPARK_JAVA_OPT_$number:-}\" ]"; do
        eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
        number=$((number + 1))
    done
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_EXTRA_CLASSPATH:+$SPARK_EXTRA_CLASSPATH:}$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
