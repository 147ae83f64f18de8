// A scan in Java: some columns of some stretches. Two that read the same are the same, so that Spark does it once.
package org.fourfold;

import java.util.ArrayList;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.StructType;

final class StoreScan implements Scan, Batch {
    private final StoreTable table;
    private final StructType wanted;
    private final ArrayList parts;
    private final String filters;

    StoreScan(StoreTable table, StructType wanted, ArrayList parts, String filters) {
        this.table = table;
        this.wanted = wanted;
        this.parts = parts;
        this.filters = filters;
    }

    public StructType readSchema() {
        return wanted;
    }

    public String description() {
        return table.name() + " in Java, " + parts.size() + " tasks";
    }

    public Batch toBatch() {
        return this;
    }

    public Scan.ColumnarSupportMode columnarSupportMode() {
        return Scan.ColumnarSupportMode.SUPPORTED;
    }

    public InputPartition[] planInputPartitions() {
        InputPartition[] planned = new InputPartition[parts.size()];
        for (int at = 0; at < planned.length; at++) {
            planned[at] = new Part((Piece[]) parts.get(at));
        }
        return planned;
    }

    public PartitionReaderFactory createReaderFactory() {
        return new Readers(table.stored, wanted, table.patience);
    }

    public boolean equals(Object other) {
        if (!(other instanceof StoreScan)) {
            return false;
        }
        StoreScan scan = (StoreScan) other;
        return scan.table == table && scan.wanted.equals(wanted) && scan.filters.equals(filters);
    }

    public int hashCode() {
        return wanted.hashCode() + filters.hashCode();
    }
}
