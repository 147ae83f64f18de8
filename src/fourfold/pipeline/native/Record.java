// Records of SQLite: a header that says of each field how it is stored, and the fields.
//
// Promises: nothing outside of the given bounds is looked at, whatever the bytes are; keys compare as SQLite compares them
// (nothing, then numbers, then texts by their bytes, then blobs).
package org.fourfold;

import java.util.Arrays;

final class Record {
    static final int DAMAGED = -1;
    private static final int[] SIZES = new int[] {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, -1, -1};

    private Record() {
    }

    // How many bytes the number at a place takes; 0 when it goes beyond the end.
    static int length(byte[] bytes, int at, int end) {
        for (int count = 1; count <= 9; count++) {
            if (at + count > end) {
                return 0;
            }
            if (bytes[at + count - 1] >= 0) {
                return count;
            }
        }
        return 9;
    }

    // The number at a place; its length is known to be sound.
    static long number(byte[] bytes, int at) {
        long value = 0L;
        for (int count = 0; count < 8; count++) {
            byte next = bytes[at + count];
            value = (value << 7) | (long) (next & 0x7f);
            if (next >= 0) {
                return value;
            }
        }
        return (value << 8) | (long) (bytes[at + 8] & 0xff);
    }

    // The bytes of a field that is stored in some way; DAMAGED when nothing is stored so.
    static long size(long type) {
        if (type >= 12L) {
            return (type - 12L) >>> 1;
        }
        return type < 0L ? (long) DAMAGED : (long) SIZES[(int) type];
    }

    static long integer(byte[] bytes, int at, int type) {
        switch (type) {
        case 1:
            return (long) bytes[at];
        case 2:
            return (long) ((bytes[at] << 8) | (bytes[at + 1] & 0xff));
        case 3:
            return (long) ((bytes[at] << 16) | ((bytes[at + 1] & 0xff) << 8) | (bytes[at + 2] & 0xff));
        case 4:
            return (long) int32(bytes, at);
        case 5:
            return ((long) ((bytes[at] << 8) | (bytes[at + 1] & 0xff)) << 32) | (int32(bytes, at + 2) & 0xffffffffL);
        case 6:
            return int64(bytes, at);
        case 8:
            return 0L;
        default:
            return 1L;
        }
    }

    static int int32(byte[] bytes, int at) {
        return (bytes[at] << 24) | ((bytes[at + 1] & 0xff) << 16) | ((bytes[at + 2] & 0xff) << 8) | (bytes[at + 3] & 0xff);
    }

    static long int64(byte[] bytes, int at) {
        return ((long) int32(bytes, at) << 32) | (int32(bytes, at + 4) & 0xffffffffL);
    }

    static int int16(byte[] bytes, int at) {
        return ((bytes[at] & 0xff) << 8) | (bytes[at + 1] & 0xff);
    }

    // Where a number of fields end, counted from the beginning of the record; DAMAGED when the header is not sound. The
    // header has to lie within the bounds, the fields need not.
    static long reach(byte[] bytes, int start, int end, int fields) {
        int taken = length(bytes, start, end);
        if (taken == 0) {
            return (long) DAMAGED;
        }
        long header = number(bytes, start);
        if (header < (long) taken || header > (long) (end - start)) {
            return (long) DAMAGED;
        }
        int stop = start + (int) header;
        int at = start + taken;
        long reached = header;
        for (int field = 0; field < fields && at < stop; field++) {
            taken = length(bytes, at, stop);
            if (taken == 0) {
                return (long) DAMAGED;
            }
            long size = size(number(bytes, at));
            if (size < 0L) {
                return (long) DAMAGED;
            }
            reached += size;
            at += taken;
        }
        return reached;
    }

    // A record beside the beginning of a key made of texts: below 0, 0, or above. The record is known to reach so far.
    static int compare(byte[] bytes, int start, int end, byte[][] key) {
        long header = number(bytes, start);
        int at = start + length(bytes, start, end);
        int stop = start + (int) header;
        int body = stop;
        for (int field = 0; field < key.length; field++) {
            if (at >= stop) {
                return -1;
            }
            long type = number(bytes, at);
            at += length(bytes, at, stop);
            int size = (int) size(type);
            if (type < 12L) {
                return -1;
            }
            if ((type & 1L) == 0L) {
                return 1;
            }
            int order = Arrays.compareUnsigned(bytes, body, body + size, key[field], 0, key[field].length);
            if (order != 0) {
                return order;
            }
            body += size;
        }
        return 0;
    }
}
