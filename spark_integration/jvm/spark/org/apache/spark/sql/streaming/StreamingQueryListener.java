package org.apache.spark.sql.streaming;

import java.util.UUID;
import scala.Option;

public abstract class StreamingQueryListener {
    public abstract void onQueryStarted(QueryStartedEvent event);

    public abstract void onQueryProgress(QueryProgressEvent event);

    public void onQueryIdle(QueryIdleEvent event) {}

    public abstract void onQueryTerminated(QueryTerminatedEvent event);

    public static class QueryStartedEvent {
        public native UUID id();

        public native UUID runId();

        public native String name();
    }

    public static class QueryProgressEvent {
        public native StreamingQueryProgress progress();
    }

    public static class QueryIdleEvent {
        public native UUID runId();
    }

    public static class QueryTerminatedEvent {
        public native UUID runId();

        public native Option<String> exception();
    }
}
