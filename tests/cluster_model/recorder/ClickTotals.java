import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.Options;

/**
 * A Kafka Streams application with a repartition and a store: it counts clicks by page.
 *
 * <p>The clicks are keyed by user, so they pass through a repartition topic: subtopology 0 writes
 * it, subtopology 1 reads it and has the store.
 */
public final class ClickTotals {
    /** Stores write files after some seconds rather than hours. */
    public static final class SmallBuffers implements RocksDBConfigSetter {
        @Override
        public void setConfig(String store, Options options, Map<String, Object> configs) {
            options.setWriteBufferSize(64 << 10);
        }

        @Override
        public void close(String store, Options options) {}
    }

    private static void work(int micros) {
        long until = System.nanoTime() + micros * 1000L;
        while (System.nanoTime() < until) {
            Thread.onSpinWait();
        }
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "click-totals");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, args[1]);
        properties.put(StreamsConfig.METRICS_RECORDING_LEVEL_CONFIG, args[2]);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        properties.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        properties.put(
                StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, SmallBuffers.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("clicks", Consumed.with(Serdes.String(), Serdes.String()))
                .peek((user, page) -> work(200))
                .groupBy((user, page) -> page, Grouped.with(Serdes.String(), Serdes.String()))
                .count(
                        Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("totals")
                                .withKeySerde(Serdes.String())
                                .withValueSerde(Serdes.Long())
                                .withCachingDisabled())
                .toStream()
                .peek((page, total) -> work(100))
                .to("totals", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.start();
        System.out.println("started");
        // The recorder ends it by closing its input.
        System.in.read();
        streams.close();
    }
}
