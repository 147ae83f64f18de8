// Where a table lies in a file, as the file says it: pages move, so nobody else can know.
package org.fourfold;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

final class Schema {
    private static final int FIELDS = 5;
    private int root;
    private String sql;

    private Schema(Snapshot state, String name) throws IOException {
        byte[] wanted = name.getBytes(StandardCharsets.UTF_8);
        byte[] arena = new byte[state.pageSize];
        Tree tree = new Tree(state, 1, false, new Bounds(null, null));
        while (tree.step(arena, 0) == Tree.LEAF) {
            for (int cell = 0; cell < tree.cells; cell++) {
                tree.open(arena, 0, cell);
                byte[] record = new byte[tree.fitting()];
                tree.gather(record, 0);
                look(state, record, wanted);
            }
        }
        if (root == 0) {
            throw state.corrupt("has no table " + name);
        }
    }

    // A table as it has to be; another one is not read by somebody who does not know it.
    static int root(Snapshot state, String name, String sql) throws IOException {
        Schema found = new Schema(state, name);
        if (!sql.equals(found.sql)) {
            throw Problem.named("FormatError", state.path, "its table " + name + " is not like those of the others",
                "Read it with spark.read.format(\"fourfold\").");
        }
        return found.root;
    }

    private void look(Snapshot state, byte[] record, byte[] wanted) throws IOException {
        long reach = Record.reach(record, 0, record.length, FIELDS);
        if (reach == (long) Record.DAMAGED || reach > (long) record.length) {
            throw state.corrupt("its schema is damaged");
        }
        int header = (int) Record.number(record, 0);
        int at = Record.length(record, 0, header);
        int body = header;
        int found = 0;
        for (int field = 0; field < FIELDS && at < header; field++) {
            long type = Record.number(record, at);
            at += Record.length(record, at, header);
            int size = (int) Record.size(type);
            if (field == 0 && !(size == 5 && record[body] == (byte) 't' && record[body + 1] == (byte) 'a')) {
                return;
            }
            if (field == 1 && !Arrays.equals(record, body, body + size, wanted, 0, wanted.length)) {
                return;
            }
            if (field == 3 && type > 0L && type < 10L) {
                found = (int) Record.integer(record, body, (int) type);
            }
            if (field == 4) {
                sql = new String(record, body, size, StandardCharsets.UTF_8);
            }
            body += size;
        }
        root = found;
    }
}
