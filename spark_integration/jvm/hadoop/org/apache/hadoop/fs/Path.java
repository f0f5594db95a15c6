package org.apache.hadoop.fs;

import java.net.URI;

public class Path {
    public Path(URI uri) {}

    public native String getName();
}
