package org.apache.hadoop.fs;

public class FSDataInputStream {}
