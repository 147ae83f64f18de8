// The keys that are wanted of a table. Of one without rowids: beyond `after` and up to `upto`, each the first fields of a key,
// all texts. Of one with rowids: beyond `since` and up to `seq`.
package org.fourfold;

final class Bounds {
    final byte[][] after;
    final byte[][] upto;
    final boolean numbered;
    final long since;
    final long seq;

    Bounds(byte[][] after, byte[][] upto) {
        this.after = after;
        this.upto = upto;
        numbered = false;
        since = 0L;
        seq = 0L;
    }

    Bounds(long since, long seq) {
        after = null;
        upto = null;
        numbered = true;
        this.since = since;
        this.seq = seq;
    }

    // Whether there is a lower bound to look for; the numbers of rows begin with 1.
    boolean low() {
        return numbered ? since > 0L : after != null;
    }

    boolean high() {
        return numbered || upto != null;
    }
}
