import java.util.concurrent.ConcurrentHashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.metrics.MeterView;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.datastream.BroadcastStream;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * A Flink job whose vertices are connected in every way that the reader of Flink distinguishes.
 *
 * <p>Each record names the subtask that sent it, and each receiver measures the records from each
 * sender ({@code from_VERTEX_SUBTASK}): what the reader can only estimate.
 */
public final class ClickCounts {
    /** A click on its way between two vertices. */
    public static class Click {
        public int key;
        public int sender;

        public Click() {}

        public Click(int key, int sender) {
            this.key = key;
            this.sender = sender;
        }
    }

    private static final TypeInformation<Click> CLICK = Types.POJO(Click.class);
    private static final OutputTag<Click> RARE = new OutputTag<>("rare", CLICK);
    private static final OutputTag<Click> EVEN = new OutputTag<>("even", CLICK);

    /** Rates of the received records by the subtask that sent them. */
    private static final class Senders {
        private final RuntimeContext context;
        private final Map<String, MeterView> meters = new ConcurrentHashMap<>();

        Senders(RuntimeContext context) {
            this.context = context;
        }

        void received(String vertex, int sender) {
            meters.computeIfAbsent(
                            "from_" + vertex + "_" + sender,
                            name -> context.getMetricGroup().meter(name, new MeterView(60)))
                    .markEvent();
        }
    }

    private static int subtask(RuntimeContext context) {
        return context.getTaskInfo().getIndexOfThisSubtask();
    }

    private static void work(int micros) {
        long until = System.nanoTime() + micros * 1000L;
        while (System.nanoTime() < until) {
            Thread.onSpinWait();
        }
    }

    /** Names its subtask as the sender; the end of the chain of the source. */
    private static final class Stamp extends RichMapFunction<Click, Click> {
        @Override
        public Click map(Click click) {
            return new Click(click.key, subtask(getRuntimeContext()));
        }
    }

    private static final class Enrich extends ProcessFunction<Click, Click> {
        private transient Senders senders;

        @Override
        public void open(OpenContext context) {
            senders = new Senders(getRuntimeContext());
        }

        @Override
        public void processElement(Click click, Context context, Collector<Click> out) {
            senders.received("clicks", click.sender);
            work(150);
            Click sent = new Click(click.key, subtask(getRuntimeContext()));
            out.collect(sent);
            if (click.key % 10 == 0) {
                context.output(RARE, sent);
            }
            if (click.key % 2 == 0) {
                context.output(EVEN, sent);
            }
        }
    }

    private static final class Count
            extends KeyedBroadcastProcessFunction<Integer, Click, Click, Click> {
        private transient Senders senders;
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            senders = new Senders(getRuntimeContext());
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Long.class));
        }

        @Override
        public void processElement(Click click, ReadOnlyContext context, Collector<Click> out)
                throws Exception {
            senders.received("enrich", click.sender);
            work(300);
            Long before = count.value();
            count.update(before == null ? 1L : before + 1);
            out.collect(new Click(click.key, subtask(getRuntimeContext())));
        }

        @Override
        public void processBroadcastElement(Click rule, Context context, Collector<Click> out) {
            senders.received("rules", rule.sender);
        }
    }

    /** Measures who sent what it passes on. */
    private static final class Received extends RichMapFunction<Click, Click> {
        private final String vertex;
        private transient Senders senders;

        Received(String vertex) {
            this.vertex = vertex;
        }

        @Override
        public void open(OpenContext context) {
            senders = new Senders(getRuntimeContext());
        }

        @Override
        public Click map(Click click) {
            senders.received(vertex, click.sender);
            work(50);
            return click;
        }
    }

    private static DataStream<Click> source(
            StreamExecutionEnvironment environment, String name, int parallelism, double rate) {
        DataGeneratorSource<Click> source =
                new DataGeneratorSource<>(
                        // Small keys are popular.
                        n -> new Click((int) (50 * Math.pow((n * 7919 % 1000) / 1000.0, 2)), 0),
                        Long.MAX_VALUE,
                        RateLimiterStrategy.perSecond(rate),
                        CLICK);
        return environment
                .fromSource(source, WatermarkStrategy.noWatermarks(), name, CLICK)
                .setParallelism(parallelism)
                .map(new Stamp())
                .name("stamp " + name)
                .setParallelism(parallelism)
                .returns(CLICK);
    }

    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(RestOptions.PORT, 0);
        configuration.set(RestOptions.BIND_ADDRESS, "127.0.0.1");
        MiniClusterConfiguration cluster =
                new MiniClusterConfiguration.Builder()
                        .setConfiguration(configuration)
                        .setNumTaskManagers(3)
                        .setNumSlotsPerTaskManager(2)
                        .build();
        MiniCluster started = new MiniCluster(cluster);
        started.start();
        JobGraph job = environment().getStreamGraph().getJobGraph();
        started.submitJob(job).get();
        System.out.println(started.getRestAddress().get() + " " + job.getJobID());
        // The recorder ends it by closing its input.
        System.in.read();
        started.close();
    }

    private static StreamExecutionEnvironment environment() {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(4);
        BroadcastStream<Click> rules =
                source(environment, "rules", 1, 5)
                        .broadcast(new MapStateDescriptor<>("rules", Types.INT, CLICK));
        SingleOutputStreamOperator<Click> enriched =
                source(environment, "clicks", 4, 80)
                        .process(new Enrich())
                        .returns(CLICK)
                        .name("enrich")
                        .startNewChain();
        enriched.getSideOutput(RARE)
                .rebalance()
                .union(enriched.getSideOutput(EVEN).rebalance())
                .map(new Received("enrich"))
                .returns(CLICK)
                .name("audit")
                .setParallelism(3)
                .sinkTo(new DiscardingSink<>())
                .name("archive")
                .setParallelism(3);
        enriched.keyBy(click -> click.key, Types.INT)
                .connect(rules)
                .process(new Count())
                .returns(CLICK)
                .name("count")
                .filter(click -> click.key % 3 != 0)
                .name("some")
                .rescale()
                .map(new Received("count"))
                .returns(CLICK)
                .name("totals")
                .setParallelism(2)
                .sinkTo(new DiscardingSink<>())
                .name("totals sink")
                .setParallelism(2);
        return environment;
    }
}
