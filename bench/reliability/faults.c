/* Faults of one process, loaded with LD_PRELOAD: a clock that is off, a disk that is full or fails.
 *
 * The file PROCESS_FAULTS_FILE holds the state, and its writer changes it while the process runs.
 * Faults of the disk apply to files below PROCESS_FAULTS_STORE, or below PROCESS_FAULTS_OBJECTS.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct state {
    volatile int64_t clock_ns;
    volatile int32_t store_full, store_failing, objects_failing;
    volatile int32_t hits; /* calls that failed, for the writer of the file */
};

static struct state none, *state = &none;
static const char *store, *objects;

__attribute__((constructor)) static void load(void)
{
    const char *path = getenv("PROCESS_FAULTS_FILE");
    store = getenv("PROCESS_FAULTS_STORE");
    objects = getenv("PROCESS_FAULTS_OBJECTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED)
        state = map;
    close(fd);
}

static int below(int fd, const char *folder)
{
    static const char proc[] = "/proc/self/fd/";
    char link[32], path[4096], digits[12];
    int count = 0, at = sizeof proc - 1;
    if (!folder || fd < 0)
        return 0;
    do
        digits[count++] = '0' + fd % 10;
    while (fd /= 10);
    memcpy(link, proc, at);
    while (count)
        link[at++] = digits[--count];
    link[at] = 0;
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t prefix = strlen(folder);
    return length > (ssize_t)prefix && !memcmp(path, folder, prefix) && path[prefix] == '/';
}

/* The error of a call that writes to `fd`; 0 if it is to succeed. */
static int failure(int fd, int is_sync)
{
    int error = 0;
    if (state->store_full && !is_sync && below(fd, store))
        error = ENOSPC;
    else if (state->store_failing && is_sync && below(fd, store))
        error = EIO;
    else if (state->objects_failing && below(fd, objects))
        error = EIO;
    if (error)
        __sync_fetch_and_add(&state->hits, 1);
    return error;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define FAIL(fd, is_sync) do { int error = failure(fd, is_sync); if (error) { errno = error; return -1; } } while (0)

ssize_t write(int fd, const void *data, size_t size) { REAL(write); FAIL(fd, 0); return real(fd, data, size); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { REAL(pwrite); FAIL(fd, 0); return real(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { REAL(pwrite64); FAIL(fd, 0); return real(fd, data, size, at); }
int fsync(int fd) { REAL(fsync); FAIL(fd, 1); return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); FAIL(fd, 1); return real(fd); }
int fallocate(int fd, int mode, off_t at, off_t size) { REAL(fallocate); FAIL(fd, 0); return real(fd, mode, at, size); }
int fallocate64(int fd, int mode, off64_t at, off64_t size) { REAL(fallocate64); FAIL(fd, 0); return real(fd, mode, at, size); }
int posix_fallocate(int fd, off_t at, off_t size) { REAL(posix_fallocate); int error = failure(fd, 0); return error ? error : real(fd, at, size); }
int posix_fallocate64(int fd, off64_t at, off64_t size) { REAL(posix_fallocate64); int error = failure(fd, 0); return error ? error : real(fd, at, size); }

static void shift(struct timespec *time)
{
    int64_t all = (int64_t)time->tv_sec * 1000000000 + time->tv_nsec + state->clock_ns;
    time->tv_sec = all / 1000000000;
    time->tv_nsec = all % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    REAL(clock_gettime);
    int result = real(clock, time);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        shift(time);
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
