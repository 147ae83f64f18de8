// One committed state of one file, as a reading transaction of SQLite sees it.
//
// Promises: all pages are of one state, whoever commits or copies the log into the file meanwhile; nothing of that state goes
// away before `close`. What cannot be read so is refused with an error that names the file, never read otherwise.
//
// Two ways lead to a state. Where the log is empty, the lock of readers of the file alone (slot 0) keeps everybody from copying
// into the file; and if the log is empty while that is held, the file is all there is. Otherwise somebody must have the file
// open, because only connections keep the index of the log right. Then the state is the one that the index names, and the lock
// is a slot whose mark is not beyond it: nobody copies more than that mark into the file, nor begins the log anew.
package org.fourfold;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.HashMap;

final class Snapshot {
    private static final String AGAIN = "Read it again: it is changing too quickly just now.";
    private static final byte[] MAGIC = new byte[] {83, 81, 76, 105, 116, 101, 32, 102, 111, 114, 109, 97, 116, 32, 51, 0};
    private static final int HEADER = 48;
    private static final int MARKS = 100;
    private static final int INDEXED = 120;
    private static final int INDEX_VERSION = 3007000;
    private static final int LOG_HEADER = 32;
    private static final int FRAME_HEADER = 24;
    private static final int UNUSED = -1;
    final String path;
    int pageSize;
    int usable;
    int keyMost;
    int least;
    long pages;
    private OpenFile held;
    private int slot = UNUSED;
    private RandomAccessFile file;
    private RandomAccessFile log;
    private HashMap frames;

    Snapshot(String path, boolean still, long patience) throws IOException {
        this.path = path;
        held = OpenFile.enter(path);
        boolean opened = false;
        try {
            file = held.reader();
            begin(still, System.nanoTime() + patience * 1000000L);
            opened = true;
        } finally {
            if (!opened) {
                close();
            }
        }
    }

    // Whether a file can be read here: where nothing may be locked it cannot, and what a connection left behind when its
    // process died, only SQLite can put in order.
    static boolean possible(String path, boolean still) {
        if (still) {
            return true;
        }
        File index = new File(path + "-shm");
        if (index.exists() ? !index.canWrite() : !index.getAbsoluteFile().getParentFile().canWrite()) {
            return false;
        }
        if (new File(path + "-wal").length() == 0L) {
            return true;
        }
        try {
            OpenFile held = OpenFile.enter(path);
            try {
                return held.lockDatabase() && !held.alone();
            } finally {
                held.leave();
            }
        } catch (IOException error) {
            return false;
        }
    }

    private void begin(boolean still, long end) throws IOException {
        if (still || !locked(end)) {
            form();
            pages = pagesOfFile();
            return;
        }
        form();
        while (!ofFile() && !ofLog()) {
            rest(end, "its log is never the same twice");
        }
    }

    // Take the lock of the database; false when the file stands still, seen from this machine.
    private boolean locked(long end) throws IOException {
        try {
            while (!held.lockDatabase()) {
                rest(end, "is locked by somebody who has it for himself");
            }
            return true;
        } catch (FileSystemException error) {
            return refused(error);
        } catch (FileNotFoundException error) {
            return refused(error);
        }
    }

    // Nothing can be put beside the file. That is no error where nobody can write it either.
    private boolean refused(IOException error) throws IOException {
        boolean frozen = Files.getFileStore(Paths.get(path, new String[0])).isReadOnly();
        if (frozen && !new File(path + "-wal").exists()) {
            return false;
        }
        throw error;
    }

    private void rest(long end, String what) throws IOException {
        if (System.nanoTime() > end) {
            throw Problem.named("LockTimeout", path, what, AGAIN);
        }
        try {
            Thread.sleep(1L);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IOException(path + ": interrupted");
        }
    }

    // What does not change as long as the file is one: the size of its pages, and how it is written.
    private void form() throws IOException {
        byte[] head = new byte[100];
        file.seek(0L);
        if (file.read(head) < head.length || !Arrays.equals(head, 0, 16, MAGIC, 0, 16)) {
            throw Problem.named("ForeignFile", path, "is not a database", "Read the others.");
        }
        pageSize = Record.int16(head, 16);
        if (pageSize == 1) {
            pageSize = 65536;
        }
        usable = pageSize - (head[20] & 0xff);
        if (pageSize < 512 || Integer.bitCount(pageSize) != 1 || usable < 480 || head[21] != 64 || head[22] != 32) {
            throw corrupt("its header is damaged");
        }
        if (head[18] != 2 || head[19] != 2 || Record.int32(head, 56) != 1) {
            throw Problem.named("FormatError", path, "is not written as Fourfold writes", "Read it with format(\"fourfold\").");
        }
        keyMost = (usable - 12) * 64 / 255 - 23;
        least = (usable - 12) * 32 / 255 - 23;
    }

    private long pagesOfFile() throws IOException {
        byte[] head = new byte[100];
        file.seek(0L);
        file.readFully(head);
        long there = file.length() / (long) pageSize;
        long said = Record.int32(head, 28) & 0xffffffffL;
        // The number in the header counts only if who wrote it last knew of it.
        return said > 0L && Record.int32(head, 24) == Record.int32(head, 92) ? Math.min(said, there) : there;
    }

    // The state that the file alone is; false when there is a log.
    private boolean ofFile() throws IOException {
        if (held.logBytes() != 0L || !held.lockSlot(0)) {
            return false;
        }
        slot = 0;
        if (held.logBytes() == 0L) {
            pages = pagesOfFile();
            return true;
        }
        unlock();
        return false;
    }

    // The newest state of the log; false when it has just changed.
    private boolean ofLog() throws IOException {
        if (held.logBytes() == 0L) {
            return false;
        }
        if (held.alone()) {
            throw Problem.named("StorageError", path, "the process that wrote it has died and left a log behind",
                "Read it again; SQLite puts it in order when it is opened.");
        }
        byte[] index = held.indexed(INDEXED);
        if (!sound(index)) {
            return false;
        }
        ByteBuffer seen = ByteBuffer.wrap(index).order(ByteOrder.nativeOrder());
        long newest = seen.getInt(16) & 0xffffffffL;
        int wanted = 0;
        long best = -1L;
        if (newest != (seen.getInt(96) & 0xffffffffL)) {
            for (int each = 1; each < OpenFile.SLOTS; each++) {
                long mark = seen.getInt(MARKS + 4 * each) & 0xffffffffL;
                if (mark <= newest && mark > best) {
                    best = mark;
                    wanted = each;
                }
            }
            if (wanted == 0) {
                return false;
            }
        }
        if (!held.lockSlot(wanted)) {
            return false;
        }
        slot = wanted;
        byte[] again = held.indexed(INDEXED);
        boolean same = again.length == INDEXED && Arrays.equals(index, 0, 2 * HEADER, again, 0, 2 * HEADER)
            && (wanted == 0 || Arrays.equals(index, MARKS + 4 * wanted, MARKS + 4 * wanted + 4, again, MARKS + 4 * wanted, MARKS + 4 * wanted + 4));
        if (!same || (wanted != 0 && !frames(seen, ByteBuffer.wrap(again).order(ByteOrder.nativeOrder()).getInt(96), newest))) {
            unlock();
            return false;
        }
        pages = seen.getInt(20) & 0xffffffffL;
        return true;
    }

    // Whether the index is whole: both copies of its header are the same, and their sum is right.
    private boolean sound(byte[] index) throws IOException {
        if (index.length < INDEXED || !Arrays.equals(index, 0, HEADER, index, HEADER, 2 * HEADER)) {
            return false;
        }
        ByteBuffer seen = ByteBuffer.wrap(index).order(ByteOrder.nativeOrder());
        int one = 0;
        int two = 0;
        for (int at = 0; at < 40; at += 8) {
            one += seen.getInt(at) + two;
            two += seen.getInt(at + 4) + one;
        }
        if (index[12] == 0 || one != seen.getInt(40) || two != seen.getInt(44)) {
            return false;
        }
        int size = seen.getShort(14) & 0xffff;
        if (seen.getInt(0) != INDEX_VERSION || (size == 1 ? 65536 : size) != pageSize) {
            throw corrupt("the index of its log is of another version or page size");
        }
        return true;
    }

    // Which frame of the log holds a page: the newest one at or before the state, of those that are not in the file already.
    private boolean frames(ByteBuffer seen, int copied, long newest) throws IOException {
        if (log != null) {
            log.close();
        }
        log = new RandomAccessFile(path + "-wal", "r");
        frames = new HashMap();
        byte[] head = new byte[FRAME_HEADER];
        byte[] salt = new byte[8];
        for (int at = 0; at < 8; at++) {
            salt[at] = seen.get(32 + at);
        }
        for (long frame = (copied & 0xffffffffL) + 1L; frame <= newest; frame++) {
            log.seek((long) LOG_HEADER + (frame - 1L) * (long) (FRAME_HEADER + pageSize));
            if (log.read(head) < FRAME_HEADER || !Arrays.equals(head, 8, 16, salt, 0, 8)) {
                return false;
            }
            frames.put(Integer.valueOf(Record.int32(head, 0)), Long.valueOf(frame));
        }
        // The index knows the sum over all of the log; it is in the last frame, which ends a transaction.
        return Record.int32(head, 4) == seen.getInt(20) && Record.int32(head, 16) == seen.getInt(24) && Record.int32(head, 20) == seen.getInt(28);
    }

    void read(int page, byte[] into, int at) throws IOException {
        if (page < 1 || (long) page > pages) {
            throw corrupt("there is no page " + page);
        }
        Object frame = frames == null ? null : frames.get(Integer.valueOf(page));
        RandomAccessFile from = file;
        long place = (long) (page - 1) * (long) pageSize;
        if (frame != null) {
            from = log;
            place = (long) LOG_HEADER + (((Long) frame).longValue() - 1L) * (long) (FRAME_HEADER + pageSize) + (long) FRAME_HEADER;
        }
        from.seek(place);
        int taken = 0;
        while (taken < pageSize) {
            int more = from.read(into, at + taken, pageSize - taken);
            if (more <= 0) {
                throw corrupt("ends before its page " + page);
            }
            taken += more;
        }
    }

    IOException corrupt(String what) {
        return Problem.corrupt(path, what);
    }

    private void unlock() throws IOException {
        frames = null;
        held.unlockSlot(slot);
        slot = UNUSED;
    }

    void close() throws IOException {
        OpenFile open = held;
        if (open == null) {
            return;
        }
        held = null;
        try {
            if (log != null) {
                log.close();
            }
            if (slot != UNUSED) {
                open.unlockSlot(slot);
            }
            if (file != null) {
                open.giveBack(file);
            }
        } finally {
            open.leave();
        }
    }
}
