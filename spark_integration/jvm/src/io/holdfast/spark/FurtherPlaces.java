package io.holdfast.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Where the tasks of one run of a query go whose executor is lost: for each partition of its state the nodes to ask in turn,
 * and the executors that each node had when the driver's companion told of it.
 */
final class FurtherPlaces {
    /** An executor as Spark knows it. */
    static final class Executor {
        final String host;
        final String id;

        Executor(String host, String id) {
            this.host = host;
            this.id = id;
        }
    }

    private final Map<String, List<Executor>> executors = new HashMap<>();
    /** By the number of partitions and the partition, which are the same for all operators that one task works on. */
    private final Map<Long, String[]> places = new HashMap<>();

    /**
     * Reads words: how many executors there are, and place, host and id of each; then for each partition how many there are,
     * its number, how many places it has, and these.
     */
    FurtherPlaces(String[] words, int from) {
        int next = from;
        int count = Integer.parseInt(words[next++]);
        for (int i = 0; i < count; i++, next += 3) {
            Executor executor = new Executor(words[next + 1], words[next + 2]);
            executors.computeIfAbsent(words[next], unknown -> new ArrayList<>()).add(executor);
        }
        while (next < words.length) {
            long key = key(Integer.parseInt(words[next]), Integer.parseInt(words[next + 1]));
            String[] found = new String[Integer.parseInt(words[next + 2])];
            System.arraycopy(words, next + 3, found, 0, found.length);
            places.put(key, found);
            next += 3 + found.length;
        }
    }

    int count() {
        return places.size();
    }

    /** Returns the executors of each of a partition's places, the best first; nothing for a partition that nobody told of. */
    List<List<Executor>> of(int partitions, int partition) {
        List<List<Executor>> found = new ArrayList<>();
        for (String place : places.getOrDefault(key(partitions, partition), new String[0])) {
            found.add(executors.getOrDefault(place, new ArrayList<>()));
        }
        return found;
    }

    private static long key(int partitions, int partition) {
        return ((long) partitions << Integer.SIZE) | partition;
    }
}
