package org.apache.hadoop.fs;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;

public abstract class FileSystem {
    public native void initialize(URI name, Configuration configuration) throws IOException;

    public native boolean mkdirs(Path path) throws IOException;

    public native boolean delete(Path path, boolean recursive) throws IOException;
}
