// What is wrong with a file, said so that Python finds the error in what Spark reports: the class of the error, then a text that
// names the file.
package org.fourfold;

import java.io.IOException;

final class Problem {
    private Problem() {
    }

    static IOException corrupt(String path, String what) {
        return new IOException("fourfold.errors.CorruptData: " + path + ": " + what);
    }

    static IOException named(String kind, String path, String what, String hint) {
        return new IOException("fourfold.errors." + kind + ": " + path + ": " + what + " || hint: " + hint);
    }
}
