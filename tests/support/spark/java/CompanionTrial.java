package io.holdfast.spark;

import org.apache.spark.SparkConf;

/** Talks to the command that {@code spark.holdfast.command} names as the plugin does, and says what came of it. */
public final class CompanionTrial {
  public static void main(String[] arguments) throws Exception {
    Companion companion = Companion.started(new SparkConf(false).set("spark.holdfast.command", arguments[0]), null);
    System.out.println("[" + companion.hello("a job", "1", true, "", 200) + "]");
    companion.started("query", "run", "name", 200);
    for (int i = 0; i < 100_000; i++) {
      companion.tell("progress", "run", "more than a pipe or a queue has room for");
    }
    companion.close();
    System.out.println("closed");
  }
}
