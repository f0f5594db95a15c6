package org.apache.hadoop.util;

public interface Progressable {}
