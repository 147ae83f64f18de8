// A time as the log writes it, 2026-03-01T12:00:00.000Z, in microseconds of UTC.
package org.fourfold;

final class Moment {
    static final long NONE = Long.MIN_VALUE;

    private Moment() {
    }

    static long micros(byte[] bytes, int at, int size) {
        if (size < 20 || size > 27 || bytes[at + size - 1] != 'Z') {
            return NONE;
        }
        if (bytes[at + 4] != '-' || bytes[at + 7] != '-' || (bytes[at + 10] != 'T' && bytes[at + 10] != ' ')) {
            return NONE;
        }
        if (bytes[at + 13] != ':' || bytes[at + 16] != ':' || (size > 20 && (bytes[at + 19] != '.' || size == 21))) {
            return NONE;
        }
        int year = digits(bytes, at, 4);
        int month = digits(bytes, at + 5, 2);
        int day = digits(bytes, at + 8, 2);
        int hour = digits(bytes, at + 11, 2);
        int minute = digits(bytes, at + 14, 2);
        int second = digits(bytes, at + 17, 2);
        int finer = size > 20 ? digits(bytes, at + 20, size - 21) : 0;
        if ((year | month | day | hour | minute | second | finer) < 0) {
            return NONE;
        }
        if (month < 1 || month > 12 || day < 1 || day > days(year, month) || hour > 23 || minute > 59 || second > 59) {
            return NONE;
        }
        for (int digit = Math.max(size - 21, 0); digit < 6; digit++) {
            finer *= 10;
        }
        long seconds = ((epochDay(year, month, day) * 24L + (long) hour) * 60L + (long) minute) * 60L + (long) second;
        return seconds * 1000000L + (long) finer;
    }

    private static int digits(byte[] bytes, int at, int count) {
        int value = 0;
        for (int each = at; each < at + count; each++) {
            int digit = bytes[each] - '0';
            if (digit < 0 || digit > 9) {
                return -1;
            }
            value = value * 10 + digit;
        }
        return value;
    }

    private static int days(int year, int month) {
        if (month == 2) {
            return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
        }
        return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
    }

    // Days since 1970-01-01, counted in years that begin in March, so that the day that leap years have is the last.
    private static long epochDay(int year, int month, int day) {
        long shifted = (long) (month > 2 ? year : year - 1);
        long months = (long) (month > 2 ? month - 3 : month + 9);
        return 365L * shifted + shifted / 4L - shifted / 100L + shifted / 400L + (153L * months + 2L) / 5L + (long) day - 719469L;
    }
}
