package timestone;

import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

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
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatch;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.AccumulatorV2;

import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's own source for Python, but that a batch scan hands Spark the columns that a Python worker sends.
 *
 * <p>Spark 4.3 makes a row of each record there, and of each row another one. What is planned, what is sent and who
 * reads it is as it was; what is ours is how a task reads. Compiled by columnar.py, with the compiler
 * that Spark has for its queries: that one knows no lambdas, and generic types only as far as they stand here. Its
 * name is the one that Spark looks for when it is asked for the format "timestone". Names with dollars are what Scala
 * calls the private members of a class.
 */
public class DefaultSource extends PythonDataSourceV2 {
    private static final String NAME = "timestone";
    private static final String SETTING = "spark.timestone.columnar";

    @Override
    public Table getTable(final StructType schema, Transform[] partitioning, Map<String, String> properties) {
        final PythonDataSourceV2 source = this;
        return new PythonTable(source, NAME, schema) {
            @Override
            public ScanBuilder newScanBuilder(final CaseInsensitiveStringMap options) {
                return new PythonScanBuilder(source, NAME, schema, options) {
                    @Override
                    public Scan build() {
                        if (!"true".equals(SQLConf.get().getConfString(SETTING, "true"))) {
                            return super.build();
                        }
                        return new PythonScan(source, NAME, schema, options, this.pushedFilters()) {
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
                                return new PythonBatch(source, NAME, schema, options) {
                                    @Override
                                    public PartitionReaderFactory createReaderFactory() {
                                        return new Columns((PythonPartitionReaderFactory) super.createReaderFactory());
                                    }
                                };
                            }
                        };
                    }
                };
            }
        };
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
