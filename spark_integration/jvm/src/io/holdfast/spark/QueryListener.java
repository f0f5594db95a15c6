package io.holdfast.spark;

import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Tells the driver's companion of the queries of all sessions. Spark makes one for each session, by
 * {@code spark.sql.streaming.streamingQueryListeners}, and calls it in the thread of the query, which waits only at its start.
 */
public final class QueryListener extends StreamingQueryListener {
    private static final long serialVersionUID = 1L;
    private static final long START_WAITS_MILLISECONDS = 900;
    private static final AtomicReference<Companion> COMPANION = new AtomicReference<>();

    static void tell(Companion companion) {
        COMPANION.set(companion);
    }

    static void forget(Companion companion) {
        COMPANION.compareAndSet(companion, null);
    }

    @Override
    public void onQueryStarted(QueryStartedEvent event) {
        Companion companion = COMPANION.get();
        if (companion != null) {
            String name = event.name() == null ? "" : event.name();
            companion.started(event.id().toString(), event.runId().toString(), name, START_WAITS_MILLISECONDS);
        }
    }

    @Override
    public void onQueryProgress(QueryProgressEvent event) {
        tell("progress", event.progress().runId(), event.progress().json());
    }

    @Override
    public void onQueryIdle(QueryIdleEvent event) {
        tell("idle", event.runId(), "");
    }

    @Override
    public void onQueryTerminated(QueryTerminatedEvent event) {
        tell("terminated", event.runId(), event.exception().isDefined() ? event.exception().get() : "");
    }

    private static void tell(String what, Object run, String about) {
        Companion companion = COMPANION.get();
        if (companion != null) {
            companion.tell(what, run.toString(), about);
        }
    }
}
