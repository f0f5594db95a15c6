package org.apache.hadoop.fs.permission;

public class FsPermission {
    public native boolean getStickyBit();

    @Override
    public native String toString();
}
