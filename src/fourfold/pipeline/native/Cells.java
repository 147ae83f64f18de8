// A column of a batch. A text is a place in the bytes that the batch was read into, so it costs no copy and no object until
// Spark asks for it; it is valid until the next batch is read, as with Spark's own readers.
package org.fourfold;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

final class Cells extends ColumnVector {
    static final int TEXT = 0;
    static final int LONG = 1;
    static final int INT = 2;
    static final int TIME = 3;
    private static final int NULL = -1;
    final int kind;
    byte[] bytes;
    private final int[] starts;
    private final int[] lengths;
    private final long[] numbers;
    private int nulls;

    Cells(DataType type, int kind, int rows) {
        super(type);
        this.kind = kind;
        lengths = new int[rows];
        starts = kind == TEXT ? new int[rows] : null;
        numbers = kind == TEXT ? null : new long[rows];
    }

    void clear() {
        nulls = 0;
    }

    // Put a field into a row; false when it is of another type than the column.
    boolean put(int row, byte[] from, int at, int type, int size) {
        if (type == 0) {
            lengths[row] = NULL;
            nulls++;
            return true;
        }
        if (kind == TEXT) {
            // Bytes in the place of a text are passed on as they are, like any other text.
            starts[row] = at;
            lengths[row] = size;
            return type >= 12;
        }
        if (kind == TIME) {
            lengths[row] = 0;
            numbers[row] = Moment.micros(from, at, size);
            return type >= 12 && numbers[row] != Moment.NONE;
        }
        return type <= 9 && type != 7 && put(row, Record.integer(from, at, type));
    }

    boolean put(int row, long number) {
        lengths[row] = 0;
        numbers[row] = number;
        return kind != INT || number == (long) (int) number;
    }

    void putTime(int row, long micros) {
        lengths[row] = micros == Moment.NONE ? NULL : 0;
        nulls += micros == Moment.NONE ? 1 : 0;
        numbers[row] = micros;
    }

    // Whether the number in a row is beyond one and up to another; nothing is not.
    boolean between(int row, long low, long high) {
        return lengths[row] != NULL && numbers[row] > low && numbers[row] <= high;
    }

    // Take back what was put into a row.
    void drop(int row) {
        if (lengths[row] == NULL) {
            nulls--;
        }
    }

    public void close() {
    }

    public boolean hasNull() {
        return nulls > 0;
    }

    public int numNulls() {
        return nulls;
    }

    public boolean isNullAt(int row) {
        return lengths[row] == NULL;
    }

    public int getInt(int row) {
        return (int) numbers[row];
    }

    public long getLong(int row) {
        return numbers[row];
    }

    public UTF8String getUTF8String(int row) {
        int length = lengths[row];
        return length < 0 ? null : UTF8String.fromAddress(bytes, (long) Platform.BYTE_ARRAY_OFFSET + (long) starts[row], length);
    }

    public boolean getBoolean(int row) {
        throw new UnsupportedOperationException();
    }

    public byte getByte(int row) {
        throw new UnsupportedOperationException();
    }

    public short getShort(int row) {
        throw new UnsupportedOperationException();
    }

    public float getFloat(int row) {
        throw new UnsupportedOperationException();
    }

    public double getDouble(int row) {
        throw new UnsupportedOperationException();
    }

    public ColumnarArray getArray(int row) {
        throw new UnsupportedOperationException();
    }

    public ColumnarMap getMap(int row) {
        throw new UnsupportedOperationException();
    }

    public Decimal getDecimal(int row, int precision, int scale) {
        throw new UnsupportedOperationException();
    }

    public byte[] getBinary(int row) {
        throw new UnsupportedOperationException();
    }

    public ColumnVector getChild(int ordinal) {
        throw new UnsupportedOperationException();
    }
}
