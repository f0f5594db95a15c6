# To be sourced at the end of Spark's own conf/spark-env.sh (bash):
#
#     . "$(python3 -m holdfast_spark.env)"
#
# Spark sources that file for every command; here something happens only when a standalone worker is started. The worker
# gets its working directory from Holdfast, the same at every start, and everything that Spark writes on this node
# goes there:
#
#     SPARK_WORKER_DIR    logs and files of applications; a directory of its own, because Spark's cleanup deletes every
#                         idle directory directly under it
#     SPARK_LOCAL_DIRS    shuffle, spill, RocksDB state stores; under tmp/, which is emptied at every start
#     java.io.tmpdir, TMPDIR
#
# Settings (all optional): HOLDFAST_WORKER_ID (default: host name and SPARK_WORKER_PORT), HOLDFAST_COMMAND (holdfast),
# HOLDFAST_SOCKET. Two workers on one host need different ports or ids; the second one is refused otherwise.

_holdfast_starts_worker() {
  case "${0##*/}" in
    start-worker.sh | start-slave.sh) return 0 ;;
  esac
  [ "${1:-}" = org.apache.spark.deploy.worker.Worker ]
}

_holdfast_set_up_worker() {
  local id assignments
  id=${HOLDFAST_WORKER_ID:-$(hostname)-${SPARK_WORKER_PORT:-worker}}
  # The shell that sources this may end before the worker's JVM is up. So the lease is not on the shell alone: its lease
  # file is opened here, all children inherit the descriptor, and the kernel closes it when the last of them has ended.
  assignments=$("${HOLDFAST_COMMAND:-holdfast}" workdir acquire --role worker --id "$id" --pid "$$" --shell) || return 1
  eval "$assignments"
  exec {HOLDFAST_LEASE_FD}<"$HOLDFAST_LEASE_FILE" || return 1
  mkdir -p "$HOLDFAST_WORKDIR/spark" "$HOLDFAST_WORKDIR/tmp/local" "$HOLDFAST_WORKDIR/tmp/java" || return 1
  export HOLDFAST_WORKDIR
  export SPARK_WORKER_DIR=$HOLDFAST_WORKDIR/spark
  export SPARK_LOCAL_DIRS=$HOLDFAST_WORKDIR/tmp/local
  export TMPDIR=$HOLDFAST_WORKDIR/tmp/java
  export JDK_JAVA_OPTIONS="${JDK_JAVA_OPTIONS:+$JDK_JAVA_OPTIONS }-Djava.io.tmpdir=$TMPDIR"
}

if _holdfast_starts_worker "$@"; then
  if ! _holdfast_set_up_worker; then
    echo "spark-env.sh: this worker got no working directory from Holdfast, and is not started" >&2
    exit 1
  fi
fi
unset -f _holdfast_starts_worker _holdfast_set_up_worker
