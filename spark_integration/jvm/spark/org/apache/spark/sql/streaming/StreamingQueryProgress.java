package org.apache.spark.sql.streaming;

import java.util.UUID;

public class StreamingQueryProgress {
    public native UUID runId();

    public native String json();
}
