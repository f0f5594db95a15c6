package io.holdfast.spark;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.StandardCopyOption;
import java.util.UUID;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Hadoop's local file system, which links files between the stores of a Holdfast mount and other directories of that mount
 * where Hadoop copies them.
 *
 * <p>Spark's state stores copy each SST from the checkpoint to a local directory and back. Where one of the two paths is in a
 * store ({@link StoreZones}) and the other one is not, a hard link takes the place of the copy. Whatever refuses the link
 * (another file system, a file of another user, too many names) leaves the copy as it was. All other paths are Hadoop's alone.
 *
 * <p>Files in the stores get no checksum file beside them, because the daemon checks each of them against a digest.
 */
public final class LinkingFileSystem extends LocalFileSystem {
    /** A name that nobody else has: Spark makes one up for each SST and each archived log that it stores. */
    private static final Pattern MADE_UP = Pattern.compile(".+-\\p{XDigit}{8}(?:-\\p{XDigit}{4}){3}-\\p{XDigit}{12}\\.[a-z]+");

    private final StoreZones zones;
    private final LocalFileSystem withoutChecksums;

    /** Hadoop makes it by reflection. */
    public LinkingFileSystem() {
        this(new StoreZones());
    }

    private LinkingFileSystem(StoreZones zones) {
        super(new RawStoreFileSystem(zones));
        this.zones = zones;
        withoutChecksums = new LocalFileSystem(getRaw());
        withoutChecksums.setWriteChecksum(false);
        withoutChecksums.setVerifyChecksum(false);
    }

    @Override
    public void initialize(URI name, Configuration configuration) throws IOException {
        zones.read(configuration);
        super.initialize(name, configuration);
    }

    @Override
    public void copyToLocalFile(boolean deleteSource, Path source, Path target) throws IOException {
        if (!link(deleteSource, source, target)) {
            super.copyToLocalFile(deleteSource, source, target);
        }
    }

    @Override
    public void copyFromLocalFile(boolean deleteSource, Path source, Path target) throws IOException {
        if (!link(deleteSource, source, target)) {
            super.copyFromLocalFile(deleteSource, source, target);
        }
    }

    @Override
    public FSDataInputStream open(Path path, int bufferBytes) throws IOException {
        return isInStore(path) ? withoutChecksums.open(path, bufferBytes) : super.open(path, bufferBytes);
    }

    @Override
    public FSDataOutputStream create(
            Path path,
            FsPermission permission,
            boolean overwrite,
            int bufferBytes,
            short replication,
            long blockBytes,
            Progressable progress)
            throws IOException {
        return isInStore(path)
                ? withoutChecksums.create(path, permission, overwrite, bufferBytes, replication, blockBytes, progress)
                : super.create(path, permission, overwrite, bufferBytes, replication, blockBytes, progress);
    }

    private boolean isInStore(Path path) {
        return zones.contain(pathToFile(path));
    }

    /** Links the file, and says whether that was possible. The copy then meets whatever was in the way, and tells of it. */
    private boolean link(boolean deleteSource, Path source, Path target) throws IOException {
        File from = pathToFile(source);
        File to = pathToFile(target);
        if (zones.contain(from) == zones.contain(to)) {
            return false;
        }
        boolean isNew = zones.contain(to) && MADE_UP.matcher(to.getName()).matches();
        if (!isNew && to.isDirectory()) {
            to = new File(to, source.getName());
        }
        File directory = to.getParentFile();
        if (!directory.isDirectory() && !mkdirs(new Path(directory.toURI()))) {
            return false;
        }
        try {
            if (!Files.isRegularFile(from.toPath(), LinkOption.NOFOLLOW_LINKS)) {
                return false;
            }
            if (isNew) {
                linkByTemporaryName(from, to);
            } else if (!to.exists()) {
                Files.createLink(to.toPath(), from.toPath());
            } else if (!Files.isSameFile(from.toPath(), to.toPath())) { // else the copy would empty what it is to read
                return false;
            }
        } catch (FileSystemException | InvalidPathException | UnsupportedOperationException refused) {
            return false;
        }
        Files.deleteIfExists(pathToFile(getChecksumFile(new Path(to.toURI()))).toPath()); // of a file that was there before
        if (deleteSource) {
            delete(source, false);
        }
        return true;
    }

    /**
     * Links the file by way of a temporary name, from which the daemon knows what comes: a look whether a store has the final
     * name, which link(2) takes as well, would ask the store.
     */
    private static void linkByTemporaryName(File from, File to) throws IOException {
        File temporary = new File(to.getParentFile(), "." + to.getName() + "." + UUID.randomUUID() + ".tmp");
        Files.createLink(temporary.toPath(), from.toPath());
        try {
            Files.move(temporary.toPath(), to.toPath(), StandardCopyOption.ATOMIC_MOVE);
        } finally {
            Files.deleteIfExists(temporary.toPath()); // also where both names are one file's: then rename(2) does nothing
        }
    }
}
