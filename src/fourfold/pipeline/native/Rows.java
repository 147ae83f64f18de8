// The rows of one task, in batches whose texts lie where they were read.
//
// Promises: the locks of a file are given back when its last row was read, when an error ends the task, and when Spark closes
// the reader, whichever is first. Whatever is in a file, the answer is its rows or an error that names it.
package org.fourfold;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

final class Rows implements PartitionReader {
    private static final int ROWS = 4096;
    private static final int ARENA = 1048576;
    private static final int ARENA_KEPT = 8 * ARENA;
    private final Stored stored;
    private final StructType schema;
    private final long patience;
    private final Piece[] pieces;
    private final Cells[] made;
    private int reached = -1;
    private Piece piece;
    private Snapshot state;
    private Tree tree;
    private ColumnarBatch batch;
    // The fields of a record that are wanted, by their place; those behind the last are not looked at.
    private Cells[] fields;
    private Cells position;
    // The column of the times of commits, if it is wanted.
    private Cells timed;
    private Times times;
    // What the first field of the key has to be, where that is known.
    private byte[] first;
    // Where pages and records of a batch lie, how much of it is used, and where the leaf that is being read begins.
    private byte[] arena;
    private int used;
    private boolean leaf;
    private int place;
    private int cell;
    private int rows;

    Rows(Stored stored, StructType schema, long patience, Piece[] pieces) {
        this.stored = stored;
        this.schema = schema;
        this.patience = patience;
        this.pieces = pieces;
        made = new Cells[schema.length() + 1];
    }

    public boolean next() throws IOException {
        try {
            return batch();
        } catch (IndexOutOfBoundsException error) {
            throw named(Problem.corrupt(piece.path, "a page is damaged"));
        } catch (IOException error) {
            throw named(error);
        }
    }

    public Object get() {
        return batch;
    }

    public void close() throws IOException {
        Snapshot open = state;
        state = null;
        if (open != null) {
            open.close();
        }
    }

    private IOException named(IOException error) throws IOException {
        close();
        if (String.valueOf(error.getMessage()).startsWith("fourfold.errors.")) {
            return error;
        }
        return Problem.named("StorageError", piece.path, String.valueOf(error.getMessage()), "Read it again.");
    }

    private boolean batch() throws IOException {
        rows = 0;
        while (rows == 0) {
            if (state == null && !begin()) {
                return false;
            }
            used = 0;
            for (int at = 0; at < made.length; at++) {
                if (made[at] != null) {
                    made[at].clear();
                }
            }
            fill();
        }
        for (int at = 0; at < made.length; at++) {
            if (made[at] != null) {
                made[at].bytes = arena;
            }
        }
        batch.setNumRows(rows);
        return true;
    }

    // Open the next file; false when there is none.
    private boolean begin() throws IOException {
        if (++reached == pieces.length) {
            return false;
        }
        piece = pieces[reached];
        state = new Snapshot(piece.path, piece.still, patience);
        int root = Schema.root(state, stored.table, stored.sql);
        boolean numbered = !stored.index && stored.position >= 0 && stored.position == stored.alias;
        Bounds bounds = numbered ? new Bounds(piece.since, piece.seq) : new Bounds(piece.after, piece.upto);
        tree = new Tree(state, root, stored.index, bounds);
        leaf = false;
        if (arena == null || arena.length < 2 * state.pageSize) {
            arena = new byte[Math.max(ARENA, 2 * state.pageSize)];
        }
        columns();
        times = null;
        if (timed != null) {
            int commits = Schema.root(state, stored.commits, stored.commitsSql);
            times = new Times(state, commits, stored.time, piece.since, piece.seq);
        }
        return true;
    }

    private void columns() {
        fields = new Cells[0];
        timed = null;
        first = piece.first == null ? null : piece.first.getBytes(StandardCharsets.UTF_8);
        ColumnVector[] columns = new ColumnVector[schema.length()];
        for (int at = 0; at < columns.length; at++) {
            DataType type = schema.apply(at).dataType();
            int field = stored.field(schema.apply(at).name());
            if (field >= 0 && (field != stored.first || piece.first == null)) {
                columns[at] = cells(at, type, field);
            } else if (field == Stored.OF_COMMIT) {
                timed = cells(at, type);
                columns[at] = timed;
            } else {
                ConstantColumnVector same = new ConstantColumnVector(ROWS, type);
                if (field == Stored.NOTHING) {
                    same.setNull();
                } else {
                    String value = field == Stored.SPACE ? piece.space : field == Stored.ROOT ? piece.root : piece.first;
                    same.setUtf8String(UTF8String.fromString(value));
                }
                columns[at] = same;
            }
        }
        if (stored.position >= 0) {
            boolean read = stored.position < fields.length && fields[stored.position] != null;
            position = read ? fields[stored.position] : cells(columns.length, DataTypes.LongType, stored.position);
        }
        batch = new ColumnarBatch(columns);
    }

    private Cells cells(int at, DataType type, int field) {
        if (fields.length <= field) {
            fields = (Cells[]) Arrays.copyOf(fields, field + 1);
        }
        fields[field] = cells(at, type);
        return fields[field];
    }

    private Cells cells(int at, DataType type) {
        if (made[at] == null) {
            int kind = Cells.TEXT;
            if (type.equals(DataTypes.LongType)) {
                kind = Cells.LONG;
            } else if (type.equals(DataTypes.IntegerType)) {
                kind = Cells.INT;
            } else if (type.equals(DataTypes.TimestampType)) {
                kind = Cells.TIME;
            }
            made[at] = new Cells(type, kind, ROWS);
        }
        return made[at];
    }

    // Read rows until the batch is full, or the piece at its end and closed.
    private void fill() throws IOException {
        keepLeaf();
        while (true) {
            while (leaf) {
                if (cell == tree.cells) {
                    leaf = false;
                } else if (rows == ROWS) {
                    return;
                } else {
                    tree.open(arena, place, cell);
                    if (!row(rows > 0)) {
                        return;
                    }
                    cell++;
                }
            }
            if (rows == ROWS || used + state.pageSize > arena.length) {
                return;
            }
            int found = tree.step(arena, used);
            if (found == Tree.END) {
                close();
                return;
            }
            if (found == Tree.LEAF) {
                place = used;
                cell = tree.cell;
                used += state.pageSize;
                leaf = true;
            } else {
                inner();
            }
        }
    }

    // The batch before is done with: what is left of a leaf moves to the front.
    private void keepLeaf() {
        byte[] into = arena.length > ARENA_KEPT ? new byte[Math.max(ARENA, 2 * state.pageSize)] : arena;
        if (leaf) {
            System.arraycopy(arena, place, into, 0, state.pageSize);
            place = 0;
            used = state.pageSize;
        }
        arena = into;
    }

    // The row of the cell that is open. Where it goes on elsewhere, and there is no room, the batch may end before it.
    private boolean row(boolean mayEnd) throws IOException {
        if ((long) tree.local == tree.size) {
            decode(tree.start, tree.start + tree.local);
            return true;
        }
        long reach = Record.reach(arena, tree.start, tree.start + tree.local, fields.length);
        if (reach >= 0L && reach <= (long) tree.local) {
            decode(tree.start, tree.start + tree.local);
            return true;
        }
        if ((long) used + tree.size > (long) arena.length && mayEnd) {
            return false;
        }
        inner();
        return true;
    }

    // A row that does not lie in the arena yet.
    private void inner() throws IOException {
        int size = tree.fitting();
        if ((long) used + (long) size > (long) arena.length) {
            if ((long) used + (long) size > (long) (Integer.MAX_VALUE - 64)) {
                throw state.corrupt("a record is longer than SQLite allows");
            }
            arena = Arrays.copyOf(arena, used + size);
        }
        tree.gather(arena, used);
        int start = used;
        used += size;
        decode(start, used);
    }

    private void decode(int start, int end) throws IOException {
        byte[] bytes = arena;
        int taken = Record.length(bytes, start, end);
        long header = taken == 0 ? -1L : Record.number(bytes, start);
        if (header < (long) taken || header > (long) (end - start)) {
            throw state.corrupt("the header of a record is damaged");
        }
        int stop = start + (int) header;
        int at = start + taken;
        int body = stop;
        for (int field = 0; field < fields.length; field++) {
            if (at >= stop) {
                throw state.corrupt("a record has fewer fields than its table");
            }
            long type = (long) bytes[at];
            if (type >= 0L) {
                at++;
            } else {
                taken = Record.length(bytes, at, stop);
                if (taken == 0) {
                    throw state.corrupt("the header of a record is damaged");
                }
                type = Record.number(bytes, at);
                at += taken;
            }
            long size = Record.size(type);
            if (size < 0L || size > (long) (end - body)) {
                throw state.corrupt("a field goes beyond its record");
            }
            if (first != null && field == stored.first && !isFirst(body, type, (int) size)) {
                throw state.corrupt("a row does not lie where its key belongs");
            }
            Cells into = fields[field];
            if (into != null && !put(into, field, body, type, (int) size)) {
                throw state.corrupt("a field is of another type than its column");
            }
            body += (int) size;
        }
        if (at == stop && (long) (body - start) != tree.size) {
            throw state.corrupt("a record is longer or shorter than its fields");
        }
        if (position == null || position.between(rows, piece.since, piece.seq)) {
            if (times != null) {
                timed.putTime(rows, times.of(position.getLong(rows)));
            }
            rows++;
        } else {
            for (int field = 0; field < fields.length; field++) {
                if (fields[field] != null) {
                    fields[field].drop(rows);
                }
            }
        }
    }

    private boolean isFirst(int body, long type, int size) {
        boolean text = type >= 13L && (type & 1L) == 1L;
        return text && size == first.length && Arrays.equals(arena, body, body + size, first, 0, size);
    }

    private boolean put(Cells into, int field, int body, long type, int size) {
        if (field == stored.alias) {
            return into.put(rows, tree.rowid);
        }
        return into.put(rows, arena, body, (int) Math.min(type, 13L), size);
    }
}
