// What a query wants of a table, and who reads it.
//
// The reader in Java is for scans. Where an index finds the few rows that are wanted (an entity by its id, the newest commits),
// where a column lies in another table of SQLite's, and where a file can only be read by SQLite itself, the reader in Python
// takes all of it, and only the columns that are wanted. Spark applies every condition again, so none can be lost between.
package org.fourfold;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.DataFrameReader;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.types.StructType;

final class StoreBuilder implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {
    private static final long RECENT_SHARE = 8L;
    // A task keeps the times of so many commits in memory, eight bytes of each.
    private static final long TIMES_MAX = 16777216L;
    private final StoreTable table;
    private StructType wanted;
    private Filter[] filters = new Filter[0];
    private long low = -1L;
    private long high = Long.MAX_VALUE;
    private boolean looked;

    StoreBuilder(StoreTable table) {
        this.table = table;
        wanted = table.schema;
    }

    public Filter[] pushFilters(Filter[] given) {
        filters = given;
        for (int at = 0; at < given.length; at++) {
            if (given[at] instanceof EqualTo) {
                EqualTo each = (EqualTo) given[at];
                narrow(each.attribute(), each.value(), each.value());
                looked = looked || table.lookups.contains(each.attribute());
            } else if (given[at] instanceof In) {
                looked = looked || table.lookups.contains(((In) given[at]).attribute());
            } else if (given[at] instanceof GreaterThan) {
                GreaterThan each = (GreaterThan) given[at];
                narrow(each.attribute(), after(each.value()), null);
            } else if (given[at] instanceof GreaterThanOrEqual) {
                GreaterThanOrEqual each = (GreaterThanOrEqual) given[at];
                narrow(each.attribute(), each.value(), null);
            } else if (given[at] instanceof LessThan) {
                LessThan each = (LessThan) given[at];
                narrow(each.attribute(), null, before(each.value()));
            } else if (given[at] instanceof LessThanOrEqual) {
                LessThanOrEqual each = (LessThanOrEqual) given[at];
                narrow(each.attribute(), null, each.value());
            }
        }
        return given;
    }

    private static Object after(Object value) {
        return value instanceof Long && ((Long) value).longValue() < Long.MAX_VALUE ? Long.valueOf(((Long) value).longValue() + 1L) : null;
    }

    private static Object before(Object value) {
        return value instanceof Long && ((Long) value).longValue() > Long.MIN_VALUE ? Long.valueOf(((Long) value).longValue() - 1L) : null;
    }

    // Positions from one to another are wanted, both included.
    private void narrow(String column, Object first, Object last) {
        if (column.equals(table.position)) {
            if (first instanceof Long) {
                low = Math.max(low, Math.max(((Long) first).longValue(), 0L) - 1L);
            }
            if (last instanceof Long) {
                high = Math.min(high, ((Long) last).longValue());
            }
        }
    }

    public Filter[] pushedFilters() {
        return new Filter[0];
    }

    public void pruneColumns(StructType required) {
        wanted = required;
    }

    public Scan build() {
        ArrayList parts = new ArrayList();
        return here(parts) ? new StoreScan(table, wanted, parts, Arrays.toString(filters)) : elsewhere();
    }

    // Whether the rows are read in Java, and then which.
    private boolean here(ArrayList parts) {
        String[] names = wanted.fieldNames();
        boolean timed = false;
        for (int at = 0; at < names.length; at++) {
            int field = table.stored.field(names[at]);
            if (field == Stored.ELSEWHERE) {
                return false;
            }
            timed = timed || field == Stored.OF_COMMIT;
        }
        double reach = 0.0;
        double all = 0.0;
        HashMap seen = new HashMap();
        for (int at = 0; at < table.parts.size(); at++) {
            Piece[] pieces = (Piece[]) table.parts.get(at);
            ArrayList kept = new ArrayList();
            for (int each = 0; each < pieces.length; each++) {
                if (!ofSpace(pieces[each])) {
                    continue;
                }
                Piece piece = table.stored.position < 0 ? pieces[each] : pieces[each].within(low, high);
                all += (double) (pieces[each].seq - pieces[each].since);
                if (table.stored.position < 0 || piece.since < piece.seq) {
                    if (timed && piece.seq - piece.since > TIMES_MAX) {
                        return false;
                    }
                    reach += (double) (piece.seq - piece.since);
                    kept.add(piece);
                    seen.put(piece.path, piece);
                }
            }
            if (!kept.isEmpty()) {
                parts.add(kept.toArray(new Piece[0]));
            }
        }
        if (looked || (table.recent && reach * (double) RECENT_SHARE < all)) {
            return false;
        }
        for (Iterator each = seen.values().iterator(); each.hasNext();) {
            Piece piece = (Piece) each.next();
            if (!Snapshot.possible(piece.path, piece.still)) {
                return false;
            }
        }
        return true;
    }

    private boolean ofSpace(Piece piece) {
        for (int at = 0; at < filters.length; at++) {
            if (filters[at] instanceof EqualTo && ((EqualTo) filters[at]).attribute().equals("space")) {
                if (!piece.space.equals(((EqualTo) filters[at]).value())) {
                    return false;
                }
            }
            if (filters[at] instanceof In && ((In) filters[at]).attribute().equals("space")) {
                if (!Arrays.asList(((In) filters[at]).values()).contains(piece.space)) {
                    return false;
                }
            }
        }
        return true;
    }

    // The same table by the reader in Python, with the columns and the conditions that are known by now.
    private Scan elsewhere() {
        String[] names = wanted.fieldNames();
        if (names.length == 0) {
            names = new String[] {table.position == null ? table.schema.fieldNames()[0] : table.position};
        }
        DataFrameReader reader = table.spark.read().format("fourfold").option("columns", String.join(",", Arrays.asList(names)));
        for (Iterator each = table.options.entrySet().iterator(); each.hasNext();) {
            Map.Entry option = (Map.Entry) each.next();
            reader = reader.option((String) option.getKey(), (String) option.getValue());
        }
        LogicalPlan plan = ((Dataset) reader.load()).queryExecution().analyzed();
        DataSourceV2Relation relation = (DataSourceV2Relation) plan.collectLeaves().head();
        ScanBuilder builder = ((SupportsRead) relation.table()).newScanBuilder(relation.options());
        if (builder instanceof SupportsPushDownFilters) {
            ((SupportsPushDownFilters) builder).pushFilters(filters);
        }
        return builder.build();
    }
}
