package org.apache.hadoop.fs;

import java.io.File;
import java.io.IOException;

public class LocalFileSystem extends ChecksumFileSystem {
    public LocalFileSystem(FileSystem raw) {}

    public native FileSystem getRaw();

    public native File pathToFile(Path path);

    public native void copyToLocalFile(boolean deleteSource, Path source, Path target) throws IOException;

    public native void copyFromLocalFile(boolean deleteSource, Path source, Path target) throws IOException;
}
