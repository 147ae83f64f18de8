// A stretch of a table in one file: keys beyond `after` and up to `upto`, positions beyond `since` and up to `seq`. In all of
// its rows `space`, `root` and, if it is not null, the first field of the key are the same.
package org.fourfold;

import java.io.Serializable;

final class Piece implements Serializable {
    final String path;
    final boolean still;
    final String space;
    final String root;
    final String first;
    final byte[][] after;
    final byte[][] upto;
    final long since;
    final long seq;

    Piece(String path, boolean still, String space, String root, String first, byte[][] after, byte[][] upto, long since, long seq) {
        this.path = path;
        this.still = still;
        this.space = space;
        this.root = root;
        this.first = first;
        this.after = after;
        this.upto = upto;
        this.since = since;
        this.seq = seq;
    }

    // The same with narrower positions.
    Piece within(long low, long high) {
        return new Piece(path, still, space, root, first, after, upto, Math.max(since, low), Math.min(seq, high));
    }
}
