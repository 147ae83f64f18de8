// What makes the readers of a scan, one for each task.
package org.fourfold;

import java.io.Serializable;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

final class Readers implements PartitionReaderFactory, Serializable {
    private final Stored stored;
    private final StructType schema;
    private final long patience;

    Readers(Stored stored, StructType schema, long patience) {
        this.stored = stored;
        this.schema = schema;
        this.patience = patience;
    }

    public PartitionReader createReader(InputPartition partition) {
        throw new UnsupportedOperationException("rows come in batches");
    }

    public PartitionReader createColumnarReader(InputPartition partition) {
        return new Rows(stored, schema, patience, ((Part) partition).pieces);
    }

    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }
}
