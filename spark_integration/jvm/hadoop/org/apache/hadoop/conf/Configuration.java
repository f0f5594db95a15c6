package org.apache.hadoop.conf;

public class Configuration {
    public native String[] getTrimmedStrings(String name);
}
