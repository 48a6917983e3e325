package timestone;

import java.sql.Timestamp;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.arrow.vector.ValueVector;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatch;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.StringStartsWith;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.AccumulatorV2;
import org.slf4j.LoggerFactory;

import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's own source for Python, but that a batch scan hands Spark the columns that a Python worker sends,
 * and that a query's filters and columns reach the source.
 *
 * <p>Spark 4.3 makes a row of each record there, and of each row another one. What is sent and who reads it is as it
 * was; what is ours is how a task reads, and which columns and filters a plan is made with. Compiled by columnar.py, with
 * the compiler that Spark has for its queries: that one knows no lambdas, and generic types only as far as they stand
 * here. Its name is the one that Spark looks for when it is asked for the format "timestone". Names with dollars are
 * what Scala calls the private members of a class.
 */
public class DefaultSource extends PythonDataSourceV2 {
    private static final String NAME = "timestone";
    private static final String SETTING = "spark.timestone.columnar";
    private static final String VERSION = "@VERSION@";
    private static final String FUNCTIONS_BY_COLUMNS = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled";
    private static final String PUSHED = "pushedFilters";
    private static final List PRUNING =
        Arrays.asList(new Object[] {"log", "partition", "offset", "timestamp", "topic"});

    @Override
    public Table getTable(final StructType schema, Transform[] partitioning, Map<String, String> properties) {
        String version = org.apache.spark.package$.MODULE$.SPARK_VERSION();
        if (!version.startsWith(VERSION + ".")) {
            LoggerFactory.getLogger(NAME).warn(
                "Spark " + version + ": scans go by rows: the jar was made for Spark " + VERSION);
            return super.getTable(schema, partitioning, properties);
        }
        return new PythonTable(this, NAME, schema) {
            @Override
            public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
                return "true".equals(SQLConf.get().getConfString(SETTING, "true"))
                    ? new Builder(schema, options)
                    : super.newScanBuilder(options);
            }
        };
    }

    /**
     * One scan of a query. Each has a source of its own: Spark's keeps the plan of the first scan for all later ones of
     * the same DataFrame, so that what is left out for one would be missing in the others. All filters are returned:
     * Spark applies them, too, and what is pushed only says which records need not be read.
     */
    static class Builder implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {
        private final CaseInsensitiveStringMap options;
        private StructType schema;
        private final ArrayList conditions = new ArrayList();
        private final ArrayList pushed = new ArrayList();

        Builder(StructType schema, CaseInsensitiveStringMap options) {
            this.schema = schema;
            this.options = options;
        }

        @Override
        public Filter[] pushFilters(Filter[] filters) {
            for (int i = 0; i < filters.length; i++) {
                Object condition = condition(filters[i]);
                if (condition != null) {
                    conditions.add(condition);
                    pushed.add(filters[i]);
                }
            }
            return filters;
        }

        @Override
        public Filter[] pushedFilters() {
            return (Filter[]) pushed.toArray(new Filter[0]);
        }

        @Override
        public void pruneColumns(StructType required) {
            List wanted = Arrays.asList(required.fieldNames());
            List kept = new ArrayList();
            StructField[] fields = schema.fields();
            for (int i = 0; i < fields.length; i++) {
                // What decodes a payload may fail, or leave rows out: also where nobody asks for its columns.
                if (wanted.contains(fields[i].name()) || fields[i].name().startsWith("payload")) {
                    kept.add(fields[i]);
                }
            }
            if (kept.isEmpty()) {
                // A batch needs a column to have a length: the one that is made without reading a record.
                kept.add(Arrays.asList(schema.fieldNames()).contains("offset") ? schema.apply("offset") : fields[0]);
            }
            schema = new StructType((StructField[]) kept.toArray(new StructField[0]));
        }

        @Override
        public Scan build() {
            // Spark would queue our columns for a function in Python while the next batch is read into them (Lent).
            SQLConf.get().setConfString(FUNCTIONS_BY_COLUMNS, "false");
            final PythonDataSourceV2 source = new PythonDataSourceV2();
            source.setShortName(NAME);
            final StructType columns = schema;
            final CaseInsensitiveStringMap asked = asked();
            return new PythonScan(source, NAME, columns, asked, pushedFilters()) {
                private boolean streaming = false;

                @Override
                public MicroBatchStream toMicroBatchStream(String checkpoint) {
                    streaming = true; // whose batches go by rows: Spark reads them in a way of their own
                    return super.toMicroBatchStream(checkpoint);
                }

                @Override
                public Scan.ColumnarSupportMode columnarSupportMode() {
                    return streaming
                        ? Scan.ColumnarSupportMode.UNSUPPORTED
                        : Scan.ColumnarSupportMode.SUPPORTED;
                }

                @Override
                public Batch toBatch() {
                    return new PythonBatch(source, NAME, columns, asked) {
                        @Override
                        public PartitionReaderFactory createReaderFactory() {
                            return new Columns((PythonPartitionReaderFactory) super.createReaderFactory());
                        }
                    };
                }
            };
        }

        /** The options, and the conditions as one more of them: the text that pushed_filters.py reads. */
        private CaseInsensitiveStringMap asked() {
            if (conditions.isEmpty()) {
                return options;
            }
            Map all = new HashMap(options.asCaseSensitiveMap());
            try {
                all.put(PUSHED, new ObjectMapper().writeValueAsString(conditions));
            } catch (JsonProcessingException error) {
                return options;
            }
            return new CaseInsensitiveStringMap(all);
        }

        /** Column, comparison and values of a filter; null for one that prunes nothing. */
        private static Object condition(Filter filter) {
            if (filter instanceof EqualTo) {
                return condition(((EqualTo) filter).attribute(), "in", new Object[] {((EqualTo) filter).value()});
            }
            if (filter instanceof EqualNullSafe) {
                return condition(
                    ((EqualNullSafe) filter).attribute(), "in", new Object[] {((EqualNullSafe) filter).value()});
            }
            if (filter instanceof In) {
                return condition(((In) filter).attribute(), "in", ((In) filter).values());
            }
            if (filter instanceof GreaterThan) {
                return condition(
                    ((GreaterThan) filter).attribute(), ">", new Object[] {((GreaterThan) filter).value()});
            }
            if (filter instanceof GreaterThanOrEqual) {
                return condition(
                    ((GreaterThanOrEqual) filter).attribute(), ">=", new Object[] {((GreaterThanOrEqual) filter).value()});
            }
            if (filter instanceof LessThan) {
                return condition(((LessThan) filter).attribute(), "<", new Object[] {((LessThan) filter).value()});
            }
            if (filter instanceof LessThanOrEqual) {
                return condition(
                    ((LessThanOrEqual) filter).attribute(), "<=", new Object[] {((LessThanOrEqual) filter).value()});
            }
            if (filter instanceof StringStartsWith) {
                return condition(
                    ((StringStartsWith) filter).attribute(), "prefix", new Object[] {((StringStartsWith) filter).value()});
            }
            return null;
        }

        private static Object condition(String column, String comparison, Object[] values) {
            if (!PRUNING.contains(column)) {
                return null;
            }
            List plain = new ArrayList();
            for (int i = 0; i < values.length; i++) {
                Object value = values[i];
                if (value instanceof Timestamp) {
                    value = ((Timestamp) value).toInstant();
                }
                if (value instanceof Instant) {
                    value = Long.valueOf(ChronoUnit.MICROS.between(Instant.EPOCH, (Instant) value));
                }
                if (!(value instanceof Long || value instanceof Integer || value instanceof String)) {
                    return null;
                }
                plain.add(value);
            }
            return Arrays.asList(new Object[] {column, comparison, plain});
        }
    }

    /** What a task gets. */
    public static class Columns implements PartitionReaderFactory {
        private final PythonPartitionReaderFactory rows;

        public Columns(PythonPartitionReaderFactory rows) {
            this.rows = rows;
        }

        @Override
        public boolean supportColumnarReads(InputPartition partition) {
            return true;
        }

        @Override
        public PartitionReader createReader(InputPartition partition) {
            return rows.createReader(partition);
        }

        @Override
        public PartitionReader createColumnarReader(InputPartition partition) {
            return new Reader(rows, (PythonInputPartition) partition);
        }
    }

    /**
     * A column of the batch that is read. Whoever takes it closes it afterwards; but the next batch is read into the
     * same vectors, and a struct that is closed has lost its fields. What they hold is freed with the worker.
     */
    static class Lent extends ArrowColumnVector {
        Lent(ValueVector vector) {
            super(vector);
        }

        @Override
        public void close() {
        }

        @Override
        public void closeIfFreeable() {
        }
    }

    /** The batches of one partition, in the task's thread. What the worker holds is freed when the task ends. */
    static class Reader implements PartitionReader {
        private final UserDefinedPythonDataSource source;
        private final scala.collection.immutable.Map metrics;
        private final scala.collection.Iterator batches;
        private ColumnarBatch batch;

        Reader(PythonPartitionReaderFactory rows, PythonInputPartition partition) {
            source = rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$source;
            metrics = PythonCustomMetric.pythonMetrics();
            MapInBatchEvaluatorFactory scan = source.createMapInBatchEvaluatorFactory(
                rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$pickledReadFunc,
                "read_from_data_source",
                UserDefinedPythonDataSource.readInputSchema(),
                rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$outputSchema,
                metrics,
                rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$jobArtifactUUID,
                rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$sessionUUID);
            ArrowPythonRunner worker = new ArrowPythonRunner(
                scan.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$chainedFunc,
                scan.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$pythonEvalType,
                new int[][] {{0}},
                new StructType().add(
                    "struct", scan.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$inputSchema),
                scan.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$sessionLocalTimeZone,
                scan.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$largeVarTypes,
                scan.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$pythonRunnerConf,
                scan.pythonMetrics(),
                scan.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$jobArtifactUUID,
                scan.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$sessionUUID);
            // One batch of one row of one struct: which part of the log to read.
            InternalRow what = row(row(partition.pickedPartition()));
            batches = worker.compute(only(only(what)), TaskContext.getPartitionId(), TaskContext.get());
        }

        private static InternalRow row(Object value) {
            return new GenericInternalRow(new Object[] {value});
        }

        private static scala.collection.Iterator only(Object item) {
            return CollectionConverters.asScala(Collections.singletonList(item).iterator());
        }

        @Override
        public boolean next() {
            if (!batches.hasNext()) {
                return false;
            }
            ColumnarBatch structs = (ColumnarBatch) batches.next();
            ArrowColumnVector struct = (ArrowColumnVector) structs.column(0);
            ColumnVector[] columns = new ColumnVector[((StructType) struct.dataType()).size()];
            for (int i = 0; i < columns.length; i++) {
                columns[i] = new Lent(struct.getChild(i).getValueVector());
            }
            batch = new ColumnarBatch(columns, structs.numRows());
            return true;
        }

        @Override
        public Object get() {
            return batch;
        }

        @Override
        public CustomTaskMetric[] currentMetricsValues() {
            Map values = new HashMap();
            Iterator each = CollectionConverters.asJava(metrics).entrySet().iterator();
            while (each.hasNext()) {
                Map.Entry entry = (Map.Entry) each.next();
                values.put(entry.getKey(), ((AccumulatorV2) entry.getValue()).value());
            }
            return source.createPythonTaskMetrics(
                (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(values)));
        }

        @Override
        public void close() {
        }
    }
}
