package io.holdfast.spark;

import java.io.File;
import org.apache.hadoop.conf.Configuration;

/** The directories of a Holdfast mount that show its stores, as Hadoop's configuration names them. */
final class StoreZones {
    /** Paths of directories, separated by commas, such as {@code /mnt/holdfast/checkpoints,/mnt/holdfast/blobs}. */
    static final String KEY = "fs.holdfast.stores";

    private volatile String[] prefixes = {};

    void read(Configuration configuration) {
        String[] read = configuration.getTrimmedStrings(KEY);
        for (int i = 0; i < read.length; i++) {
            read[i] = new File(read[i]).getPath() + File.separator;
        }
        prefixes = read;
    }

    /** Says whether the file is in one of them. Symbolic links to them are not followed. */
    boolean contain(File file) {
        for (String prefix : prefixes) {
            if (file.getPath().startsWith(prefix)) {
                return true;
            }
        }
        return false;
    }
}
