package io.holdfast.spark;

import java.util.Arrays;
import java.util.stream.Collectors;

/** A line of fields with tabs between them; in a field, a backslash stands before {@code \}, {@code t}, {@code n}, {@code r}. */
final class Line {
    private Line() {}

    static String of(String... fields) {
        return Arrays.stream(fields).map(Line::escaped).collect(Collectors.joining("\t"));
    }

    static String[] fields(String line) {
        String[] fields = line.split("\t", -1);
        for (int i = 0; i < fields.length; i++) {
            fields[i] = plain(fields[i]);
        }
        return fields;
    }

    private static String escaped(String field) {
        return field.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r");
    }

    private static String plain(String field) {
        StringBuilder plain = new StringBuilder();
        for (int i = 0; i < field.length(); i++) {
            char each = field.charAt(i);
            if (each == '\\' && i + 1 < field.length()) {
                each = field.charAt(++i);
                each = each == 't' ? '\t' : each == 'n' ? '\n' : each == 'r' ? '\r' : each;
            }
            plain.append(each);
        }
        return plain.toString();
    }
}
