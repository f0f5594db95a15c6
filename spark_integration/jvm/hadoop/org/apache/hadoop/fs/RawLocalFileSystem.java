package org.apache.hadoop.fs;

import java.io.File;
import java.io.IOException;
import org.apache.hadoop.fs.permission.FsPermission;

public class RawLocalFileSystem extends FileSystem {
    public native File pathToFile(Path path);

    public native void setPermission(Path path, FsPermission permission) throws IOException;
}
