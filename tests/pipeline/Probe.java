// Reads as a task of Spark's does, without Spark: for tests, which compile it together with the classes of the scan.
package org.fourfold;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

public final class Probe {
    private final StoreTable table;
    private final ArrayList waiting = new ArrayList();
    private Rows rows;

    private Probe(StoreTable table) {
        this.table = table;
        waiting.addAll(table.parts);
    }

    public static Object open(String ddl, String told) {
        return new Probe(new StoreTable(null, new HashMap(), ddl, told));
    }

    // Files that are open in the whole JVM.
    public static int files() {
        HashMap found = (HashMap) System.getProperties().get("fourfold.open-files");
        return found == null ? 0 : found.size();
    }

    public static boolean possible(String path) {
        return Snapshot.possible(path, false);
    }

    // Some batches more, as lines of fields; with an error, a last line that tells it.
    public String next(int batches) {
        StringBuilder out = new StringBuilder();
        try {
            for (int left = batches; left > 0;) {
                if (rows == null) {
                    if (waiting.isEmpty()) {
                        break;
                    }
                    rows = new Rows(table.stored, table.schema, 2000L, (Piece[]) waiting.remove(0));
                }
                if (rows.next()) {
                    ColumnarBatch batch = (ColumnarBatch) rows.get();
                    for (int row = 0; row < batch.numRows(); row++) {
                        line(batch, row, out);
                    }
                    left--;
                } else {
                    rows.close();
                    rows = null;
                }
            }
        } catch (IOException error) {
            out.append("! ").append(error.getMessage()).append("\n");
        }
        return out.toString();
    }

    public void close() throws IOException {
        if (rows != null) {
            rows.close();
        }
    }

    private static void line(ColumnarBatch batch, int row, StringBuilder out) {
        for (int at = 0; at < batch.numCols(); at++) {
            ColumnVector column = batch.column(at);
            DataType type = column.dataType();
            out.append(at == 0 ? "" : " ");
            if (column.isNullAt(row)) {
                out.append("-");
            } else if (type.equals(DataTypes.StringType)) {
                out.append("=").append(Base64.getEncoder().encodeToString(column.getUTF8String(row).getBytes()));
            } else {
                out.append(type.equals(DataTypes.IntegerType) ? (long) column.getInt(row) : column.getLong(row));
            }
        }
        out.append("\n");
    }
}
