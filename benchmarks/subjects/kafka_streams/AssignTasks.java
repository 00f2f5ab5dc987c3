// Runs the assignors of Kafka Streams on states that arrive on standard input.
// It is in their package because the classes that it drives are not public.
package org.apache.kafka.streams.processor.internals.assignment;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.InternalTopicManager;
import org.apache.kafka.streams.processor.internals.TopologyMetadata.Subtopology;

public final class AssignTasks {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final String[] STRATEGIES = {"none", "min_traffic", "balance_subtopology"};

    // Topics as the brokers describe them, without brokers.
    private static final class DescribedTopics extends InternalTopicManager {
        private final Map<String, List<TopicPartitionInfo>> topics = new HashMap<>();

        private DescribedTopics(final StreamsConfig config) {
            super(Time.SYSTEM, null, config);
        }

        @Override
        public Map<String, List<TopicPartitionInfo>> getTopicPartitionInfo(final Set<String> asked) {
            final Map<String, List<TopicPartitionInfo>> found = new HashMap<>(topics);
            found.keySet().retainAll(asked);
            return found;
        }
    }

    private final DataInputStream in;
    private final DataOutputStream out;
    private final StreamsConfig config;

    private AssignTasks(final DataInputStream in, final DataOutputStream out) {
        this.in = in;
        this.out = out;
        final Map<String, Object> properties = new HashMap<>();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "assign-tasks");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:1");
        config = new StreamsConfig(properties);
    }

    public static void main(final String[] arguments) throws IOException {
        final PrintStream answers = System.out;
        System.setOut(System.err);
        final DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        final DataOutputStream out = new DataOutputStream(new BufferedOutputStream(answers, 1 << 16));
        final AssignTasks assigning = new AssignTasks(in, out);
        while (assigning.answerNext()) {
            out.flush();
        }
    }

    private boolean answerNext() throws IOException {
        final LegacyTaskAssignor assignor;
        try {
            assignor = assignor(in.readInt());
        } catch (final EOFException end) {
            return false;
        }
        final AssignmentConfigs configs = configs();
        final int[] capacities = ints(in.readInt());
        final List<Map<String, String>> tags = new ArrayList<>();
        final Map<ProcessId, Map<String, Optional<String>>> rackOf = new TreeMap<>();
        final ProcessId[] ids = new ProcessId[capacities.length];
        for (int i = 0; i < ids.length; i++) {
            ids[i] = new ProcessId(new UUID(0L, i));
            final int rack = in.readInt();
            final Optional<String> named = rack < 0 ? Optional.empty() : Optional.of("rack" + rack);
            rackOf.put(ids[i], new HashMap<>(Map.of("consumer", named)));
            final Map<String, String> own = new HashMap<>();
            for (int left = in.readInt(); left > 0; left--) {
                own.put("tag" + in.readInt(), "value" + in.readInt());
            }
            tags.add(own);
        }

        final TaskId[] tasks = new TaskId[in.readInt()];
        final Map<Subtopology, Set<TaskId>> bySubtopology = new HashMap<>();
        final Set<TaskId> stateful = new TreeSet<>();
        final Map<TaskId, Set<TopicPartition>> sources = new HashMap<>();
        final Map<TaskId, Set<TopicPartition>> changelogs = new HashMap<>();
        final List<PartitionInfo> known = new ArrayList<>();
        final DescribedTopics described = new DescribedTopics(config);
        final Map<TaskId, Long> ends = new HashMap<>();
        for (int t = 0; t < tasks.length; t++) {
            final int subtopology = in.readInt();
            tasks[t] = new TaskId(subtopology, in.readInt());
            bySubtopology
                .computeIfAbsent(new Subtopology(subtopology, null), s -> new HashSet<>())
                .add(tasks[t]);
            final boolean hasState = in.readInt() != 0;
            final long end = in.readLong();
            if (hasState) {
                stateful.add(tasks[t]);
                ends.put(tasks[t], end);
            }
            final Set<TopicPartition> read = new HashSet<>();
            for (int p = in.readInt(); p > 0; p--) {
                final TopicPartition partition = new TopicPartition("source" + t + "-" + p, 0);
                final Node[] replicas = replicas();
                known.add(new PartitionInfo(partition.topic(), 0, null, replicas, replicas));
                read.add(partition);
            }
            sources.put(tasks[t], read);
            final Set<TopicPartition> written = new HashSet<>();
            for (int p = in.readInt(); p > 0; p--) {
                final TopicPartition partition = new TopicPartition("changelog" + t + "-" + p, 0);
                final List<Node> replicas = Arrays.asList(replicas());
                described.topics.put(
                    partition.topic(),
                    List.of(new TopicPartitionInfo(0, replicas.get(0), replicas, replicas)));
                written.add(partition);
            }
            if (!written.isEmpty()) {
                changelogs.put(tasks[t], written);
            }
        }

        final List<Map<TaskId, Long>> lags = new ArrayList<>();
        final List<Set<TaskId>> actives = new ArrayList<>();
        final List<Set<TaskId>> standbys = new ArrayList<>();
        for (int i = 0; i < ids.length; i++) {
            lags.add(new HashMap<>(ends));
            actives.add(new TreeSet<>());
            standbys.add(new TreeSet<>());
        }
        for (int left = in.readInt(); left > 0; left--) {
            final TaskId task = tasks[in.readInt()];
            lags.get(in.readInt()).put(task, in.readLong());
        }
        for (int left = in.readInt(); left > 0; left--) {
            final TaskId task = tasks[in.readInt()];
            final int instance = in.readInt();
            (in.readInt() != 0 ? actives : standbys).get(instance).add(task);
        }
        final TreeMap<ProcessId, ClientState> clients = new TreeMap<>();
        for (int i = 0; i < ids.length; i++) {
            clients.put(
                ids[i],
                new ClientState(
                    actives.get(i), standbys.get(i), lags.get(i), tags.get(i), capacities[i], ids[i]));
        }
        final Set<TaskId> all = new TreeSet<>(Arrays.asList(tasks));
        final RackAwareTaskAssignor racks = new RackAwareTaskAssignor(
            new Cluster("cluster", List.of(), known, Set.of(), Set.of()),
            sources, changelogs, bySubtopology, rackOf, described, configs, Time.SYSTEM);

        final long cpu = THREADS.getCurrentThreadCpuTime();
        final long clock = System.nanoTime();
        final boolean probing;
        try {
            probing = assignor.assign(clients, all, stateful, racks, configs);
        } catch (final RuntimeException failure) {
            out.writeInt(-1);
            out.writeUTF(failure.toString());
            return true;
        }
        final long elapsed = System.nanoTime() - clock;
        final long processor = THREADS.getCurrentThreadCpuTime() - cpu;

        out.writeInt(probing ? 1 : 0);
        out.writeLong(elapsed);
        out.writeLong(processor);
        final Map<TaskId, Integer> index = new HashMap<>();
        for (int t = 0; t < tasks.length; t++) {
            index.put(tasks[t], t);
        }
        for (final ProcessId id : ids) {
            for (final Set<TaskId> assigned :
                    List.of(clients.get(id).activeTasks(), clients.get(id).standbyTasks())) {
                out.writeInt(assigned.size());
                for (final TaskId task : assigned) {
                    out.writeInt(index.get(task));
                }
            }
        }
        return true;
    }

    private static LegacyTaskAssignor assignor(final int kind) {
        switch (kind) {
            case 0:
                return new HighAvailabilityTaskAssignor();
            case 1:
                return new FallbackPriorTaskAssignor();
            case 2:
                return new LegacyStickyTaskAssignor();
            default:
                throw new IllegalArgumentException("unknown kind of assignor: " + kind);
        }
    }

    private AssignmentConfigs configs() throws IOException {
        final long acceptableLag = in.readLong();
        final int warmups = in.readInt();
        final int standbys = in.readInt();
        final String strategy = STRATEGIES[in.readInt()];
        final int traffic = in.readInt();
        final int nonOverlap = in.readInt();
        final List<String> tags = new ArrayList<>();
        for (int left = in.readInt(); left > 0; left--) {
            tags.add("tag" + in.readInt());
        }
        return new AssignmentConfigs(
            acceptableLag, warmups, standbys, 600_000L, tags,
            traffic < 0 ? OptionalInt.empty() : OptionalInt.of(traffic),
            nonOverlap < 0 ? OptionalInt.empty() : OptionalInt.of(nonOverlap),
            strategy);
    }

    // The nodes with a replica: one in each rack, without a rack where that is negative.
    private Node[] replicas() throws IOException {
        final Node[] nodes = new Node[in.readInt()];
        for (int n = 0; n < nodes.length; n++) {
            final int rack = in.readInt();
            nodes[n] = new Node(rack + 1, "node" + (rack + 1), 9092, rack < 0 ? null : "rack" + rack);
        }
        return nodes;
    }

    private int[] ints(final int count) throws IOException {
        final int[] read = new int[count];
        for (int i = 0; i < count; i++) {
            read[i] = in.readInt();
        }
        return read;
    }
}
