package org.apache.hadoop.fs;

public class FSDataOutputStream {}
