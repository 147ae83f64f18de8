// What one task reads: stretches of the tables of some files, one after the other.
package org.fourfold;

import java.io.Serializable;
import org.apache.spark.sql.connector.read.InputPartition;

final class Part implements InputPartition, Serializable {
    final Piece[] pieces;

    Part(Piece[] pieces) {
        this.pieces = pieces;
    }
}
