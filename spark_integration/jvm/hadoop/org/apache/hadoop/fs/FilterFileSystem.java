package org.apache.hadoop.fs;

public class FilterFileSystem extends FileSystem {}
