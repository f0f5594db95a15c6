import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collection;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.flink.runtime.checkpoint.Checkpoints;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;
import org.apache.flink.runtime.checkpoint.metadata.MetadataSerializer;
import org.apache.flink.runtime.checkpoint.metadata.MetadataSerializers;
import org.apache.flink.runtime.state.filemerging.DirectoryStreamStateHandle;
import org.apache.flink.runtime.state.filemerging.EmptySegmentFileStateHandle;
import org.apache.flink.runtime.state.filemerging.SegmentFileStateHandle;
import org.apache.flink.runtime.state.filesystem.FileStateHandle;
import org.apache.flink.runtime.state.filesystem.RelativeFileStateHandle;

/**
 * What Flink itself reads in _metadata files, one line a reference. Arguments: the files; "--versions DIRECTORY" first
 * writes the first of them again in each version of the format that this Flink can write.
 */
public final class Expected {
  private final Set<String> lines = new TreeSet<>();
  private final Set<Object> seen = Collections.newSetFromMap(new IdentityHashMap<>());

  private void walk(Object value) throws IllegalAccessException {
    if (value == null || value instanceof EmptySegmentFileStateHandle || !seen.add(value)) {
      return;
    }
    if (value instanceof SegmentFileStateHandle segment) {
      lines.add("segment " + segment.getFilePath());
    } else if (value instanceof DirectoryStreamStateHandle directory) {
      lines.add("directory " + directory.getDirectory());
    } else if (value instanceof RelativeFileStateHandle relative) {
      lines.add("relative " + relative.getRelativePath());
    } else if (value instanceof FileStateHandle file) {
      lines.add("file " + file.getFilePath());
    } else if (value instanceof Collection<?> values) {
      for (Object each : values) {
        walk(each);
      }
    } else if (value instanceof Map<?, ?> map) {
      walk(map.values());
    } else if (value instanceof Object[] array) {
      for (Object each : array) {
        walk(each);
      }
    } else if (value.getClass().getName().startsWith("org.apache.flink.")) {
      walkFields(value);
    }
  }

  private void walkFields(Object value) throws IllegalAccessException {
    for (Class<?> type = value.getClass(); type.getName().startsWith("org.apache.flink."); type = type.getSuperclass()) {
      for (Field field : type.getDeclaredFields()) {
        if (!Modifier.isStatic(field.getModifiers()) && !field.getType().isPrimitive()) {
          field.setAccessible(true);
          walk(field.get(value));
        }
      }
    }
  }

  private static CheckpointMetadata load(Path file) throws Exception {
    try (DataInputStream in = new DataInputStream(new FileInputStream(file.toFile()))) {
      return Checkpoints.loadCheckpointMetadata(in, Expected.class.getClassLoader(), "file:" + file.getParent());
    }
  }

  public static void main(String[] arguments) throws Exception {
    int first = 0;
    if (arguments[0].equals("--versions")) {
      first = 2;
      CheckpointMetadata metadata = load(Paths.get(arguments[2]).toAbsolutePath());
      for (int version = 3; version <= 6; version++) {
        MetadataSerializer serializer = MetadataSerializers.getSerializer(version);
        String name = arguments[1] + "/version-" + serializer.getVersion();
        try (DataOutputStream out = new DataOutputStream(new FileOutputStream(name))) {
          Checkpoints.storeCheckpointMetadata(metadata, out, serializer);
        }
      }
    }
    for (int i = first; i < arguments.length; i++) {
      CheckpointMetadata metadata = load(Paths.get(arguments[i]).toAbsolutePath());
      Expected expected = new Expected();
      expected.walk(metadata.getOperatorStates());
      System.out.println("metadata " + arguments[i]);
      System.out.println("checkpoint " + metadata.getCheckpointId());
      expected.lines.forEach(System.out::println);
    }
  }
}
