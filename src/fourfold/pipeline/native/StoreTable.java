// A table of Fourfold's for Spark, of one cut.
//
// It is told on the driver which stretches of which files it is made of, and how to make the same table with the reader in
// Python. When Spark has said which columns and which rows a query wants, it takes one of the two (StoreBuilder).
package org.fourfold;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

public final class StoreTable implements SupportsRead {
    final SparkSession spark;
    final HashMap options;
    final StructType schema;
    final Stored stored;
    final String position;
    final HashSet lookups = new HashSet();
    final boolean recent;
    final long patience;
    final ArrayList parts = new ArrayList();

    // What is told: a line about the table, one about its columns, and for each task how many pieces it has and a line of
    // each. Texts are in Base64, `-` is nothing.
    StoreTable(SparkSession spark, HashMap options, String ddl, String told) {
        this.spark = spark;
        this.options = options;
        schema = StructType.fromDDL(ddl);
        String[] lines = told.split("\n");
        String[] head = lines[0].split(" ", -1);
        String[] columns = lines[1].split(" ");
        String[] names = new String[columns.length];
        int[] fields = new int[columns.length];
        for (int at = 0; at < columns.length; at++) {
            int sign = columns[at].indexOf('=');
            names[at] = columns[at].substring(0, sign);
            fields[at] = Integer.parseInt(columns[at].substring(sign + 1));
        }
        stored = new Stored(text(head[0]), text(head[1]), head[2].equals("1"), Integer.parseInt(head[3]), Integer.parseInt(head[4]),
            Integer.parseInt(head[5]), names, fields, text(head[10]), text(head[11]), Integer.parseInt(head[12]));
        position = text(head[6]);
        String[] looked = text(head[7]).split(",");
        for (int at = 0; at < looked.length; at++) {
            lookups.add(looked[at]);
        }
        recent = head[8].equals("1");
        patience = Long.parseLong(head[9]);
        for (int at = 2; at < lines.length; at++) {
            Piece[] pieces = new Piece[Integer.parseInt(lines[at])];
            for (int each = 0; each < pieces.length; each++) {
                at++;
                pieces[each] = piece(lines[at].split(" ", -1));
            }
            parts.add(pieces);
        }
    }

    private static Piece piece(String[] told) {
        return new Piece(text(told[0]), told[1].equals("1"), text(told[2]), text(told[3]), text(told[4]), key(told[5]), key(told[6]),
            Long.parseLong(told[7]), Long.parseLong(told[8]));
    }

    private static String text(String told) {
        return told.equals("-") ? null : new String(Base64.getDecoder().decode(told), StandardCharsets.UTF_8);
    }

    private static byte[][] key(String told) {
        if (told.equals("-")) {
            return null;
        }
        String[] fields = told.split(",", -1);
        byte[][] key = new byte[fields.length][];
        for (int at = 0; at < fields.length; at++) {
            key[at] = Base64.getDecoder().decode(fields[at]);
        }
        return key;
    }

    public static Object frame(Object session, Object options, String ddl, String told) {
        SparkSession spark = (SparkSession) session;
        StoreTable table = new StoreTable(spark, (HashMap) options, ddl, told);
        Object plan = DataSourceV2Relation.create(table, Option.empty(), Option.empty());
        return Dataset$.MODULE$.ofRows(spark, (LogicalPlan) plan);
    }

    public String name() {
        return "fourfold." + options.get("table");
    }

    public StructType schema() {
        return schema;
    }

    public Set capabilities() {
        HashSet found = new HashSet();
        found.add(TableCapability.BATCH_READ);
        return found;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap ignored) {
        return new StoreBuilder(this);
    }
}
