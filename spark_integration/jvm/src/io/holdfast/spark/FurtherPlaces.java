package io.holdfast.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The places where the tasks of one run of a query can run: for each partition of its state the nodes to ask in turn, and the
 * executors that each node had when the driver's companion told of it.
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

    /** How long a task waits for an executor that has its state, beyond what Spark waits by itself. */
    final long waitMillis;

    private final Set<Integer> counts = new HashSet<>();
    private final Map<String, List<Executor>> executors = new HashMap<>();
    private final List<String[]> places = new ArrayList<>();

    /**
     * Reads words: how long to wait; how many numbers of partitions operators have, and these; how many executors there are, and
     * place, host and id of each; then for each partition how many places it has, and these.
     */
    FurtherPlaces(String[] words, int from) {
        int next = from;
        waitMillis = Long.parseLong(words[next++]);
        for (int left = Integer.parseInt(words[next++]); left > 0; left--) {
            counts.add(Integer.valueOf(words[next++]));
        }
        for (int left = Integer.parseInt(words[next++]); left > 0; left--, next += 3) {
            Executor executor = new Executor(words[next + 1], words[next + 2]);
            executors.computeIfAbsent(words[next], unknown -> new ArrayList<>()).add(executor);
        }
        while (next < words.length) {
            int end = next + 1 + Integer.parseInt(words[next]);
            places.add(Arrays.copyOfRange(words, next + 1, end));
            next = end;
        }
    }

    int count() {
        return places.size();
    }

    /** Says whether an operator has so many partitions. */
    boolean hasOperatorOf(int partitions) {
        return counts.contains(partitions);
    }

    /** Returns the executors of each of a partition's places, the best first; nothing for a partition that nobody told of. */
    List<List<Executor>> of(int partition) {
        List<List<Executor>> found = new ArrayList<>();
        for (String place : partition < places.size() ? places.get(partition) : new String[0]) {
            found.add(executors.getOrDefault(place, new ArrayList<>()));
        }
        return found;
    }
}
