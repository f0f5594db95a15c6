#!/bin/sh
# A streaming job on Kubernetes by spark-submit, in cluster mode: driver and executors get the mount by pod templates.
#   spark-submit.sh https://API-SERVER:6443 IMAGE local:///opt/job/flights.py
# IMAGE has Spark 4, the job, and the Python package holdfast. The job calls configure(builder, name="flights"), without
# kubernetes=True: the templates are here.
set -eu
server=$1 image=$2 job=$3
here=$(dirname "$0")
python3 -m holdfast_spark.kubernetes flights >executor.yaml
exec spark-submit --master "k8s://$server" --deploy-mode cluster --name flights \
  --conf spark.kubernetes.container.image="$image" \
  --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
  --conf spark.kubernetes.driver.podTemplateFile="$here/driver.yaml" \
  --conf spark.kubernetes.driver.podTemplateContainerName=driver \
  --conf spark.kubernetes.executor.podTemplateFile=executor.yaml \
  --conf spark.kubernetes.executor.podTemplateContainerName=executor \
  --conf spark.executor.instances=2 \
  --conf spark.scheduler.minRegisteredResourcesRatio=1.0 \
  --conf spark.scheduler.maxRegisteredResourcesWaitingTime=120s \
  "$job"
