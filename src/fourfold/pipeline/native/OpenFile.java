// A database file that tasks of this JVM have open, and the locks that the JVM holds on it for them.
//
// Promises: nothing is ever written, neither to the database nor to its log nor to the index of the log. Locks are those that
// SQLite takes itself, so every process respects them. They are counted: a task that ends takes away nothing from the others.
//
// The system gives locks to a process, and takes away all that it has on a file when the process closes the file anywhere. So
// a file is closed only when nobody here reads it any more, and what is open is known to the whole JVM: Spark loads these
// classes more than once, which makes a static field several. For the same reason a file is read through RandomAccessFile: a
// channel is closed when the thread that reads from it is interrupted.
package org.fourfold;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.channels.FileLock;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Properties;

final class OpenFile {
    static final int SLOTS = 5;
    private static final String KEY = "fourfold.open-files";
    private static final long SHARED_FIRST = 0x40000002L;
    private static final long SHARED_SIZE = 510L;
    private static final long READ_FIRST = 123L;
    private static final long DEAD_MAN = 128L;
    private static final int USERS = 0;
    private static final int DATABASE = 1;
    private static final int DATABASE_LOCK = 2;
    private static final int INDEX = 3;
    private static final int SLOT_LOCKS = 4;
    private static final int SLOT_USERS = 5;
    private static final int IDLE = 6;
    private static final int READERS = 7;
    private final String path;
    private final Object key;
    private final HashMap all;
    private final Object[] shared;

    private OpenFile(String path, Object key, HashMap all, Object[] shared) {
        this.path = path;
        this.key = key;
        this.all = all;
        this.shared = shared;
    }

    // What is open in this JVM, by what the system calls a file. Only classes of Java itself are in it.
    private static HashMap all() {
        Properties properties = System.getProperties();
        synchronized (properties) {
            HashMap found = (HashMap) properties.get(KEY);
            if (found == null) {
                found = new HashMap();
                properties.put(KEY, found);
            }
            return found;
        }
    }

    static OpenFile enter(String path) throws IOException {
        Object key;
        try {
            Path there = Paths.get(path, new String[0]);
            BasicFileAttributes facts = Files.readAttributes(there, BasicFileAttributes.class, new LinkOption[0]);
            key = String.valueOf(facts.fileKey());
        } catch (NoSuchFileException error) {
            throw Problem.named("NotFound", path, "has gone", "Read the store again.");
        }
        HashMap all = all();
        synchronized (all) {
            Object[] shared = (Object[]) all.get(key);
            if (shared == null) {
                shared = new Object[8];
                shared[USERS] = new int[1];
                shared[DATABASE] = new RandomAccessFile(path, "r");
                shared[SLOT_LOCKS] = new FileLock[SLOTS];
                shared[SLOT_USERS] = new int[SLOTS];
                shared[IDLE] = new ArrayList();
                shared[READERS] = new ArrayList();
                all.put(key, shared);
            }
            ((int[]) shared[USERS])[0]++;
            return new OpenFile(path, key, all, shared);
        }
    }

    void leave() throws IOException {
        synchronized (all) {
            if (--((int[]) shared[USERS])[0] > 0) {
                return;
            }
            all.remove(key);
            // Closing gives back the locks.
            ((RandomAccessFile) shared[DATABASE]).close();
            if (shared[INDEX] != null) {
                ((RandomAccessFile) shared[INDEX]).close();
            }
            ArrayList readers = (ArrayList) shared[READERS];
            for (int at = 0; at < readers.size(); at++) {
                ((RandomAccessFile) readers.get(at)).close();
            }
        }
    }

    // A reader of the database that nobody else uses until it is given back.
    RandomAccessFile reader() throws IOException {
        synchronized (all) {
            ArrayList idle = (ArrayList) shared[IDLE];
            if (!idle.isEmpty()) {
                return (RandomAccessFile) idle.remove(idle.size() - 1);
            }
            RandomAccessFile made = new RandomAccessFile(path, "r");
            ((ArrayList) shared[READERS]).add(made);
            return made;
        }
    }

    void giveBack(RandomAccessFile reader) {
        synchronized (all) {
            ((ArrayList) shared[IDLE]).add(reader);
        }
    }

    // The lock that every connection to a database holds. As long as it is held nobody takes the file for his own, as the last
    // connection does when it closes: it then copies the log into the file, whoever reads.
    boolean lockDatabase() throws IOException {
        synchronized (all) {
            if (shared[DATABASE_LOCK] == null) {
                RandomAccessFile file = (RandomAccessFile) shared[DATABASE];
                shared[DATABASE_LOCK] = file.getChannel().tryLock(SHARED_FIRST, SHARED_SIZE, true);
            }
            if (shared[DATABASE_LOCK] != null && shared[INDEX] == null) {
                shared[INDEX] = index();
            }
            return shared[DATABASE_LOCK] != null;
        }
    }

    // The index of the log, which also is the file that the locks of readers lie on. Where there is none, an empty one is
    // made, as SQLite makes it: the first connection that comes fills it.
    private RandomAccessFile index() throws IOException {
        Path there = Paths.get(path + "-shm", new String[0]);
        Path database = Paths.get(path, new String[0]);
        if (!Files.exists(there, new LinkOption[0])) {
            try {
                FileAttribute mode = PosixFilePermissions.asFileAttribute(Files.getPosixFilePermissions(database, new LinkOption[0]));
                Files.createFile(there, new FileAttribute[] {mode});
                String[] owners = new String[] {"unix:uid", "unix:gid"};
                for (int at = 0; at < owners.length; at++) {
                    Object wanted = Files.getAttribute(database, owners[at], new LinkOption[0]);
                    if (!wanted.equals(Files.getAttribute(there, owners[at], new LinkOption[0]))) {
                        Files.setAttribute(there, owners[at], wanted, new LinkOption[0]);
                    }
                }
            } catch (FileAlreadyExistsException error) {
                // Somebody else has just made it.
            }
        }
        return new RandomAccessFile(there.toFile(), "rw");
    }

    // Take one of the locks of readers; false when somebody holds it for himself.
    boolean lockSlot(int slot) throws IOException {
        synchronized (all) {
            int[] users = (int[]) shared[SLOT_USERS];
            if (users[slot] == 0) {
                FileLock lock = ((RandomAccessFile) shared[INDEX]).getChannel().tryLock(READ_FIRST + (long) slot, 1L, true);
                if (lock == null) {
                    return false;
                }
                ((FileLock[]) shared[SLOT_LOCKS])[slot] = lock;
            }
            users[slot]++;
            return true;
        }
    }

    void unlockSlot(int slot) throws IOException {
        synchronized (all) {
            int[] users = (int[]) shared[SLOT_USERS];
            if (--users[slot] == 0) {
                ((FileLock[]) shared[SLOT_LOCKS])[slot].release();
            }
        }
    }

    // Whether no connection is open anywhere: then nobody vouches for the index, and only SQLite can make it anew.
    boolean alone() throws IOException {
        synchronized (all) {
            FileLock lock = ((RandomAccessFile) shared[INDEX]).getChannel().tryLock(DEAD_MAN, 1L, false);
            if (lock == null) {
                return false;
            }
            lock.release();
            return true;
        }
    }

    // The beginning of the index; fewer bytes when there are no more.
    byte[] indexed(int bytes) throws IOException {
        synchronized (all) {
            RandomAccessFile index = (RandomAccessFile) shared[INDEX];
            byte[] found = new byte[bytes];
            index.seek(0L);
            int taken = Math.max(0, index.read(found));
            return taken == bytes ? found : Arrays.copyOf(found, taken);
        }
    }

    long logBytes() {
        return new File(path + "-wal").length();
    }
}
