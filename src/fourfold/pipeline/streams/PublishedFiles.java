// Published segments as one relation of Spark's own Parquet reader, with values of their manifests as partition columns.
//
// Compiled on first use, in the JVM of the driver, by the compiler that Spark ships for its generated code. Spark lists no folder
// and opens no file for this: names and sizes of the files come from the manifests. A stream is a partition, so its name costs
// nothing per row, and a condition on it skips the files of all others.
package org.fourfold;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileStatusCache;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.PartitionPath;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Map;
import scala.jdk.javaapi.CollectionConverters;

public class PublishedFiles extends FileStatusCache {
    private final HashMap known = new HashMap();
    private final ArrayList files = new ArrayList();
    private final ArrayList partitions = new ArrayList();

    // A line for each partition: number of files, folder, stream, content type, generation, low, high, textual; then one for
    // each file: name, size. Texts are in Base64.
    private PublishedFiles(String description) {
        String[] lines = description.split("\n");
        for (int at = 0; at < lines.length; at++) {
            String[] head = lines[at].split(" ", -1);
            Path folder = new Path("file", "", text(head[1]));
            Object[] values = new Object[] {
                UTF8String.fromString(text(head[2])),
                UTF8String.fromString(text(head[3])),
                Long.valueOf(head[4]),
                Long.valueOf(head[5]),
                Long.valueOf(head[6]),
                Boolean.valueOf(head[7])
            };
            partitions.add(new PartitionPath((InternalRow) new GenericInternalRow(values), folder));
            for (int left = Integer.parseInt(head[0]); left > 0; left--) {
                at++;
                String[] file = lines[at].split(" ", -1);
                Path path = new Path(folder, file[0]);
                long size = Long.parseLong(file[1]);
                if (known.put(path, new FileStatus[] {new FileStatus(size, false, 1, size, 0L, path)}) == null) {
                    files.add(path);
                }
            }
        }
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    public static Object frame(Object session, String description, String columns, String constants) {
        SparkSession spark = (SparkSession) session;
        PublishedFiles published = new PublishedFiles(description);
        StructType stored = StructType.fromDDL(columns);
        StructType fixed = StructType.fromDDL(constants);
        Map options = scala.collection.immutable.Map$.MODULE$.empty();
        PartitionSpec spec = new PartitionSpec(fixed, CollectionConverters.asScala(published.partitions).toSeq());
        InMemoryFileIndex index = new InMemoryFileIndex(
            spark, CollectionConverters.asScala(published.files).toSeq(), options, Option.apply(stored), published, Option.apply(spec),
            Option.empty());
        return spark.baseRelationToDataFrame(
            new HadoopFsRelation(index, fixed, stored, Option.empty(), new ParquetFileFormat(), options, spark));
    }

    public Option getLeafFiles(Path path) {
        return Option.apply(known.get(path));
    }

    public void putLeafFiles(Path path, FileStatus[] leafFiles) {
    }

    public void invalidateAll() {
    }
}
