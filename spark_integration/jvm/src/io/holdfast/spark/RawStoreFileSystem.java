package io.holdfast.spark;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The files themselves, below the checksums. Without Hadoop's native library, Hadoop starts a {@code chmod} for each file that
 * it creates; in the stores the mode is set by the system call.
 */
final class RawStoreFileSystem extends RawLocalFileSystem {
    private final StoreZones zones;

    RawStoreFileSystem(StoreZones zones) {
        this.zones = zones;
    }

    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
        File file = pathToFile(path);
        if (zones.contain(file) && !permission.getStickyBit()) {
            Files.setPosixFilePermissions(file.toPath(), PosixFilePermissions.fromString(permission.toString()));
        } else {
            super.setPermission(path, permission);
        }
    }
}
