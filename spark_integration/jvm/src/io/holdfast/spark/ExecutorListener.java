package io.holdfast.spark;

import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;

/** Tells the driver's companion at once of executors that are gone, also in the middle of a batch. */
final class ExecutorListener extends SparkListener {
    private final Companion companion;

    ExecutorListener(Companion companion) {
        this.companion = companion;
    }

    @Override
    public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
        companion.tell("lost", event.executorId());
    }
}
