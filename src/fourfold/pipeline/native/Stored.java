// How a table of Fourfold's lies in a table of SQLite's: its name and its definition, whether it is without rowids, which field
// of a record is its position (and whether that is the rowid), which one begins its key, and for each column the field. The
// time of a row may be that of its commit, which is a field of another table, whose rowids are the positions.
package org.fourfold;

import java.io.Serializable;

final class Stored implements Serializable {
    static final int SPACE = -1;
    static final int ROOT = -2;
    static final int NOTHING = -3;
    static final int ELSEWHERE = -4;
    static final int OF_COMMIT = -5;
    final String table;
    final String sql;
    final boolean index;
    final int position;
    final int alias;
    final int first;
    final String[] columns;
    final int[] fields;
    final String commits;
    final String commitsSql;
    final int time;

    Stored(String table, String sql, boolean index, int position, int alias, int first, String[] columns, int[] fields,
        String commits, String commitsSql, int time) {
        this.table = table;
        this.sql = sql;
        this.index = index;
        this.position = position;
        this.alias = alias;
        this.first = first;
        this.columns = columns;
        this.fields = fields;
        this.commits = commits;
        this.commitsSql = commitsSql;
        this.time = time;
    }

    // The field that a column is; ELSEWHERE when it does not lie in the table.
    int field(String column) {
        for (int at = 0; at < columns.length; at++) {
            if (columns[at].equals(column)) {
                return fields[at];
            }
        }
        return ELSEWHERE;
    }
}
