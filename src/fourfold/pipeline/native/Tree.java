// A walk through the b-tree of one table in the order of its keys, from beyond one key up to another.
//
// Promises: every page of the tree is read at most once, every place in it is looked at before it is used, and a tree that
// bites its own tail, or whose rows are not in the order of their numbers, ends in an error. A table without rowids is an index
// whose keys are its rows, and they lie in its inner pages too.
package org.fourfold;

import java.io.IOException;

final class Tree {
    static final int END = 0;
    static final int LEAF = 1;
    static final int ROW = 2;
    private static final int DEPTH_MAX = 20;
    private static final int INDEX_INNER = 2;
    private static final int TABLE_INNER = 5;
    private static final int INDEX_LEAF = 10;
    private static final int TABLE_LEAF = 13;
    private static final int LEAF_HEAD = 8;
    private static final int INNER_HEAD = 12;
    private final Snapshot state;
    private final boolean index;
    private final Bounds bounds;
    private final byte[][] inner = new byte[DEPTH_MAX][];
    private final int[] head = new int[DEPTH_MAX];
    private final int[] next = new int[DEPTH_MAX];
    private final boolean[] row = new boolean[DEPTH_MAX];
    private byte[] scratch = new byte[0];
    private int depth = -1;
    private int root;
    private long left;
    private boolean seeking;
    private boolean ended;
    private int leafHead;
    private long highest = Long.MIN_VALUE;
    private byte[] opened;

    // Of the leaf that the last step found: the first cell that is wanted, and the one behind the last.
    int cell;
    int cells;
    // Of the cell that was last opened: its number, if it has one, where its record is, how long, and how much is on the page.
    long rowid;
    int start;
    long size;
    int local;

    Tree(Snapshot state, int root, boolean index, Bounds bounds) {
        this.state = state;
        this.root = root;
        this.index = index;
        this.bounds = bounds;
        seeking = bounds.low();
        left = state.pages;
    }

    // Go to the next rows: a LEAF, which is read into the arena at a place, one ROW of an inner page, which is opened, or
    // the END.
    int step(byte[] arena, int at) throws IOException {
        if (root != 0) {
            int first = root;
            root = 0;
            if (enter(first, arena, at, true)) {
                return leaf(arena, at, first);
            }
        }
        while (depth >= 0 && !ended) {
            byte[] bytes = inner[depth];
            int count = Record.int16(bytes, head[depth] + 3);
            int child = next[depth];
            if (row[depth]) {
                row[depth] = false;
                next[depth]++;
                open(bytes, 0, head[depth], INNER_HEAD, child);
                ended = bounds.high() && beyond(false);
                if (!ended) {
                    return ROW;
                }
            } else if (child > count) {
                depth--;
            } else {
                int number = Record.int32(bytes, child == count ? head[depth] + 8 : pointer(bytes, head[depth], INNER_HEAD, child));
                row[depth] = index && child < count;
                if (!row[depth]) {
                    next[depth]++;
                }
                if (enter(number, arena, at, false)) {
                    return leaf(arena, at, number);
                }
            }
        }
        return END;
    }

    // Open the next cell of the leaf that was found last, which may lie elsewhere in the arena by now.
    void open(byte[] arena, int at, int number) throws IOException {
        open(arena, at, leafHead, LEAF_HEAD, number);
        if (!index) {
            if (rowid < highest) {
                throw state.corrupt("the rows of a table are not in the order of their numbers");
            }
            highest = rowid;
        }
    }

    // Read a page of the tree; true when it is a leaf. An inner one is put on top of those that are open.
    private boolean enter(int number, byte[] arena, int at, boolean top) throws IOException {
        if (left-- <= 0L) {
            throw state.corrupt("the pages of a table go round in circles");
        }
        state.read(number, arena, at);
        int first = number == 1 ? 100 : 0;
        int kind = arena[at + first];
        boolean leaf = kind == (index ? INDEX_LEAF : TABLE_LEAF);
        if (Record.int16(arena, at + first + 3) == 0 && !(top && (leaf || number == 1))) {
            throw state.corrupt("page " + number + " is damaged: it is empty");
        }
        if (leaf) {
            check(arena, at, first, LEAF_HEAD, number);
            return true;
        }
        if (kind != (index ? INDEX_INNER : TABLE_INNER) || depth + 1 >= DEPTH_MAX) {
            throw state.corrupt("page " + number + " is not a page of the table that it belongs to");
        }
        check(arena, at, first, INNER_HEAD, number);
        depth++;
        if (inner[depth] == null) {
            inner[depth] = new byte[state.pageSize];
        }
        System.arraycopy(arena, at, inner[depth], 0, state.pageSize);
        head[depth] = first;
        row[depth] = false;
        next[depth] = seeking ? search(inner[depth], 0, first, INNER_HEAD, true) : 0;
        return false;
    }

    // What SQLite asks of a page before it believes its cells: every pointer leads behind the pointers.
    private void check(byte[] bytes, int at, int first, int header, int number) throws IOException {
        int count = Record.int16(bytes, at + first + 3);
        int low = first + header + 2 * count;
        int high = state.usable - 4;
        if (low > state.usable || count > (state.pageSize - 8) / 6) {
            throw state.corrupt("page " + number + " is damaged: it cannot have " + count + " cells");
        }
        for (int each = 0; each < count; each++) {
            int to = pointer(bytes, at + first, header, each);
            if (to < low || to > high) {
                throw state.corrupt("page " + number + " is damaged: a cell lies outside of it");
            }
        }
    }

    private int leaf(byte[] arena, int at, int number) throws IOException {
        leafHead = number == 1 ? 100 : 0;
        cells = Record.int16(arena, at + leafHead + 3);
        cell = seeking ? search(arena, at, leafHead, LEAF_HEAD, true) : 0;
        seeking = false;
        if (bounds.high() && cells > cell) {
            open(arena, at, leafHead, LEAF_HEAD, cells - 1);
            if (beyond(false)) {
                cells = Math.max(cell, search(arena, at, leafHead, LEAF_HEAD, false));
                ended = true;
            }
        }
        return LEAF;
    }

    private static int pointer(byte[] bytes, int first, int header, int number) {
        return Record.int16(bytes, first + header + 2 * number);
    }

    // The first cell of a page whose key lies beyond a bound, the lower or the upper one; as many as there are if none does.
    private int search(byte[] bytes, int at, int first, int header, boolean lower) throws IOException {
        int low = 0;
        int high = Record.int16(bytes, at + first + 3);
        while (low < high) {
            int middle = (low + high) >>> 1;
            open(bytes, at, first, header, middle);
            if (beyond(lower)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return low;
    }

    // Whether the cell that is open lies beyond a bound.
    private boolean beyond(boolean lower) throws IOException {
        if (!index) {
            return rowid > (lower ? bounds.since : bounds.seq);
        }
        byte[][] key = lower ? bounds.after : bounds.upto;
        byte[] bytes = opened;
        int from = start;
        int end = start + local;
        long reach = Record.reach(bytes, from, end, key.length);
        if ((reach < 0L || reach > (long) local) && (long) local < size) {
            if ((long) scratch.length < size) {
                scratch = new byte[fitting()];
            }
            gather(scratch, 0);
            bytes = scratch;
            from = 0;
            end = (int) size;
            reach = Record.reach(bytes, from, end, key.length);
        }
        if (reach < 0L || reach > (long) (end - from)) {
            throw state.corrupt("a key is damaged");
        }
        return Record.compare(bytes, from, end, key) > 0;
    }

    private void open(byte[] bytes, int at, int first, int header, int number) throws IOException {
        int limit = at + state.usable;
        int place = at + pointer(bytes, at + first, header, number);
        if (header == INNER_HEAD) {
            place += 4;
        }
        if (!index && header == INNER_HEAD) {
            checked(bytes, place, limit);
            rowid = Record.number(bytes, place);
            return;
        }
        int taken = checked(bytes, place, limit);
        long payload = taken == 1 ? (long) bytes[place] : Record.number(bytes, place);
        place += taken;
        if (!index) {
            taken = checked(bytes, place, limit);
            rowid = Record.number(bytes, place);
            place += taken;
        }
        int most = index ? state.keyMost : state.usable - 35;
        int here;
        if (payload >= 0L && payload <= (long) most) {
            here = (int) payload;
        } else {
            if (payload < 0L || payload > (long) state.usable * state.pages) {
                throw state.corrupt("a record is longer than its file");
            }
            long rest = (long) state.least + (payload - (long) state.least) % (long) (state.usable - 4);
            here = rest <= (long) most ? (int) rest : state.least;
            // The number of the first page with the rest of the record follows.
            limit -= 4;
        }
        if (place + here > limit) {
            throw state.corrupt("a cell goes beyond its page");
        }
        opened = bytes;
        start = place;
        size = payload;
        local = here;
    }

    private int checked(byte[] bytes, int place, int limit) throws IOException {
        if (place < limit && bytes[place] >= 0) {
            return 1;
        }
        int taken = Record.length(bytes, place, limit);
        if (taken == 0) {
            throw state.corrupt("a cell goes beyond its page");
        }
        return taken;
    }

    // How long an array for the record that is open has to be.
    int fitting() throws IOException {
        if (size > (long) (Integer.MAX_VALUE - 64)) {
            throw state.corrupt("a record is longer than SQLite allows");
        }
        return (int) size;
    }

    // The whole record that is open, with what lies on other pages, into an array that has room for it.
    void gather(byte[] into, int at) throws IOException {
        System.arraycopy(opened, start, into, at, local);
        long missing = size - (long) local;
        if (missing == 0L) {
            return;
        }
        int number = Record.int32(opened, start + local);
        int to = at + local;
        byte[] page = new byte[state.pageSize];
        while (missing > 0L) {
            state.read(number, page, 0);
            int part = (int) Math.min(missing, (long) (state.usable - 4));
            System.arraycopy(page, 4, into, to, part);
            number = Record.int32(page, 0);
            to += part;
            missing -= (long) part;
        }
    }
}
