package org.apache.hadoop.fs;

import java.io.IOException;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

public abstract class ChecksumFileSystem extends FilterFileSystem {
    public native void setVerifyChecksum(boolean verifies);

    public native void setWriteChecksum(boolean writes);

    public native Path getChecksumFile(Path file);

    public native FSDataInputStream open(Path path, int bufferBytes) throws IOException;

    public native FSDataOutputStream create(
            Path path,
            FsPermission permission,
            boolean overwrite,
            int bufferBytes,
            short replication,
            long blockBytes,
            Progressable progress)
            throws IOException;
}
