// The times of the commits of a file, by their seqs: what a row of the log says of its commit is the seq alone.
package org.fourfold;

import java.io.IOException;
import java.util.Arrays;

final class Times {
    private final long since;
    private final long[] micros;

    // Those beyond one seq and up to another, which are the numbers of the rows of a table; a field of them is the time.
    Times(Snapshot state, int root, int field, long since, long seq) throws IOException {
        this.since = since;
        micros = new long[(int) (seq - since)];
        Arrays.fill(micros, Moment.NONE);
        byte[] arena = new byte[state.pageSize];
        byte[] record = new byte[0];
        Tree tree = new Tree(state, root, false, new Bounds(null, null));
        while (tree.step(arena, 0) == Tree.LEAF) {
            for (int cell = tree.cell; cell < tree.cells; cell++) {
                tree.open(arena, 0, cell);
                if (tree.rowid <= since || tree.rowid > seq) {
                    continue;
                }
                byte[] bytes = arena;
                int start = tree.start;
                if ((long) tree.local != tree.size) {
                    if ((long) record.length < tree.size) {
                        record = new byte[tree.fitting()];
                    }
                    tree.gather(record, 0);
                    bytes = record;
                    start = 0;
                }
                micros[(int) (tree.rowid - since - 1L)] = time(state, bytes, start, start + (int) tree.size, field);
            }
        }
    }

    private static long time(Snapshot state, byte[] bytes, int start, int end, int field) throws IOException {
        long before = Record.reach(bytes, start, end, field);
        long behind = Record.reach(bytes, start, end, field + 1);
        if (before < 0L || behind <= before || behind > (long) (end - start)) {
            throw state.corrupt("a commit has no time");
        }
        long found = Moment.micros(bytes, start + (int) before, (int) (behind - before));
        if (found == Moment.NONE) {
            throw state.corrupt("a commit has a time that is none");
        }
        return found;
    }

    // The time of a commit; NONE when there is no such commit.
    long of(long seq) {
        return micros[(int) (seq - since - 1L)];
    }
}
