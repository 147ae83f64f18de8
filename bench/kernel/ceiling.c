/* The ceiling: what SQLite does when C calls it, with the same statements, commits, pragmas and data
 * as Fourfold's kernel, and nothing else. No event loop, no queue, no error recovery: any surprise
 * ends the program.
 *
 *   ceiling version
 *   ceiling MODE DATABASE DATA COUNT BATCH SETUP ADVANCE STATEMENT [SIZE STATEMENT]...
 *
 * MODE is
 *   loop      one INSERT for each row             STATEMENT: the INSERT
 *   values    several rows to an INSERT           SIZE STATEMENT pairs, the largest size first
 *   carray    one INSERT for each batch of a key  STATEMENT: INSERT ... SELECT ... FROM carray
 *   requests  an INSERT and an UPDATE for each    STATEMENT: INSERT, ADVANCE: UPDATE of one key
 *   claims    an UPDATE and an INSERT for each    ADVANCE: UPDATE ... RETURNING, STATEMENT: INSERT
 *
 * The first COUNT rows of DATA go in, BATCH rows to a transaction. The three bulk modes advance the
 * counter of every key that a batch touched, once. The clock starts before the first BEGIN and stops
 * after a final checkpoint, so that no work is left for later. The answer is one line of JSON.
 */

#define _GNU_SOURCE
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>

#define COLUMNS 5
#define STATEMENTS_MAX 16

typedef struct {
  int64_t count, payload_size, ts, keys; /* The header of the data file. */
  int64_t *key;
  char *payload;
} Data;

typedef struct {
  int rows;
  sqlite3_stmt *stmt;
} Chunk;

typedef struct {
  sqlite3 *db;
  sqlite3_stmt *begin, *commit, *advance;
  Chunk chunk[STATEMENTS_MAX];
  int chunks;
  int64_t *position; /* The next position of every key. */
  int64_t *touched;  /* How many rows of the running batch each key got. */
  const Data *data;
} Job;

static void fail(sqlite3 *db, const char *what) {
  fprintf(stderr, "ceiling: %s: %s\n", what, db ? sqlite3_errmsg(db) : "failed");
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu(void) {
  struct rusage r;
  getrusage(RUSAGE_SELF, &r);
  return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
         (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql) {
  sqlite3_stmt *stmt;
  if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, 0)) fail(db, sql);
  return stmt;
}

static void run(sqlite3 *db, sqlite3_stmt *stmt) {
  if (sqlite3_step(stmt) != SQLITE_DONE) fail(db, sqlite3_sql(stmt));
  sqlite3_reset(stmt);
}

static Data load(const char *path, int64_t count) {
  Data data;
  FILE *file = fopen(path, "rb");
  if (!file || fread(&data, sizeof(int64_t), 4, file) != 4) fail(0, path);
  if (count > data.count) fail(0, "the data file is too short: reading it");
  int64_t bytes = count * data.payload_size;
  data.key = malloc((size_t)count * sizeof(int64_t));
  data.payload = malloc((size_t)bytes);
  if (!data.key || !data.payload) fail(0, "memory");
  if ((int64_t)fread(data.key, sizeof(int64_t), (size_t)count, file) != count) fail(0, path);
  if (fseek(file, 32 + data.count * (int64_t)sizeof(int64_t), SEEK_SET)) fail(0, path);
  if ((int64_t)fread(data.payload, 1, (size_t)bytes, file) != bytes) fail(0, path);
  fclose(file);
  data.count = count;
  return data;
}

static void bind_row(const Job *job, sqlite3_stmt *stmt, int at, int64_t i, int64_t position) {
  const Data *data = job->data;
  sqlite3_bind_int64(stmt, at, data->key[i]);
  sqlite3_bind_int64(stmt, at + 1, data->ts);
  sqlite3_bind_int64(stmt, at + 2, position);
  sqlite3_bind_blob64(stmt, at + 3, data->payload + i * data->payload_size,
                      (sqlite3_uint64)data->payload_size, SQLITE_STATIC);
  sqlite3_bind_int64(stmt, at + 4, data->payload_size);
}

/* Rows as single or multi-row VALUES: the largest chunk that fits, again and again. */
static void insert_values(Job *job, int64_t from, int64_t to) {
  for (int c = 0; c < job->chunks; c++) {
    int rows = job->chunk[c].rows;
    sqlite3_stmt *stmt = job->chunk[c].stmt;
    for (; to - from >= rows; from += rows) {
      for (int r = 0; r < rows; r++) {
        int64_t key = job->data->key[from + r];
        job->touched[key]++;
        bind_row(job, stmt, r * COLUMNS + 1, from + r, job->position[key]++);
      }
      run(job->db, stmt);
    }
  }
  if (from != to) fail(0, "a chunk of one row is missing: inserting");
}

#ifdef SQLITE_ENABLE_CARRAY
static void insert_carray(Job *job, int64_t from, int64_t to) {
  const Data *data = job->data;
  sqlite3_stmt *stmt = job->chunk[0].stmt;
  int n = (int)(to - from);
  int64_t key = data->key[from];
  struct iovec *array = malloc((size_t)n * sizeof *array);
  if (!array) fail(0, "memory");
  for (int i = 0; i < n; i++) {
    if (data->key[from + i] != key) fail(0, "carray takes one key: inserting");
    array[i].iov_base = data->payload + (from + i) * data->payload_size;
    array[i].iov_len = (size_t)data->payload_size;
  }
  sqlite3_bind_int64(stmt, 1, key);
  sqlite3_bind_int64(stmt, 2, data->ts);
  sqlite3_bind_int64(stmt, 3, job->position[key]);
  if (sqlite3_carray_bind(stmt, 4, array, n, SQLITE_CARRAY_BLOB, SQLITE_STATIC)) {
    fail(job->db, "carray_bind");
  }
  run(job->db, stmt);
  free(array);
  job->position[key] += n;
  job->touched[key] += n;
}
#endif

static void advance_counters(Job *job) {
  for (int64_t key = 0; key <= job->data->keys; key++) {
    if (!job->touched[key]) continue;
    sqlite3_bind_int64(job->advance, 1, key);
    sqlite3_bind_int64(job->advance, 2, job->touched[key]);
    run(job->db, job->advance);
    job->touched[key] = 0;
  }
}

/* A row at the counter's position, then the counter. */
static void run_requests(Job *job, int64_t from, int64_t to) {
  const Data *data = job->data;
  sqlite3_stmt *insert = job->chunk[0].stmt;
  for (int64_t i = from; i < to; i++) {
    sqlite3_bind_int64(insert, 1, data->key[i]);
    sqlite3_bind_int64(insert, 2, data->ts);
    sqlite3_bind_blob64(insert, 3, data->payload + i * data->payload_size,
                        (sqlite3_uint64)data->payload_size, SQLITE_STATIC);
    sqlite3_bind_int64(insert, 4, data->payload_size);
    run(job->db, insert);
    sqlite3_bind_int64(job->advance, 1, data->key[i]);
    run(job->db, job->advance);
  }
}

/* A position from the counter, then a row at that position. */
static void run_claims(Job *job, int64_t from, int64_t to) {
  sqlite3_stmt *insert = job->chunk[0].stmt;
  for (int64_t i = from; i < to; i++) {
    sqlite3_bind_int64(job->advance, 1, job->data->key[i]);
    if (sqlite3_step(job->advance) != SQLITE_ROW) fail(job->db, "claim");
    int64_t position = sqlite3_column_int64(job->advance, 0);
    if (sqlite3_step(job->advance) != SQLITE_DONE) fail(job->db, "claim");
    sqlite3_reset(job->advance);
    bind_row(job, insert, 1, i, position);
    run(job->db, insert);
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Every request of a group waits as long as its group takes. */
static double quantile_us(double *groups, int64_t n, double q) {
  return groups[(int64_t)(q * (double)(n - 1) + 0.5)] * 1e6;
}

static void print_pragma(sqlite3 *db, const char *name) {
  char sql[64];
  snprintf(sql, sizeof sql, "PRAGMA %s", name);
  sqlite3_stmt *stmt = prepare(db, sql);
  if (sqlite3_step(stmt) != SQLITE_ROW) fail(db, sql);
  printf(", \"%s\": \"%s\"", name, (const char *)sqlite3_column_text(stmt, 0));
  sqlite3_finalize(stmt);
}

static int version(void) {
  printf("{\"sqlite\": \"%s\", \"options\": [", sqlite3_libversion());
  const char *option;
  for (int i = 0; (option = sqlite3_compileoption_get(i)); i++) {
    printf("%s\"%s\"", i ? ", " : "", option);
  }
  printf("]}\n");
  return 0;
}

static void prepare_chunks(Job *job, int argc, char **argv) {
  if (argc == 1) {
    job->chunk[job->chunks++] = (Chunk){1, prepare(job->db, argv[0])};
    return;
  }
  for (int i = 0; i + 1 < argc && job->chunks < STATEMENTS_MAX; i += 2) {
    job->chunk[job->chunks++] = (Chunk){atoi(argv[i]), prepare(job->db, argv[i + 1])};
  }
}

static void run_batch(Job *job, const char *mode, int64_t from, int64_t to) {
  run(job->db, job->begin);
  if (!strcmp(mode, "requests")) {
    run_requests(job, from, to);
  } else if (!strcmp(mode, "claims")) {
    run_claims(job, from, to);
  } else {
#ifdef SQLITE_ENABLE_CARRAY
    if (!strcmp(mode, "carray")) insert_carray(job, from, to);
    else
#endif
      insert_values(job, from, to);
    advance_counters(job);
  }
  run(job->db, job->commit);
}

int main(int argc, char **argv) {
  sqlite3_initialize();
  if (argc == 2 && !strcmp(argv[1], "version")) return version();
  if (argc < 9) fail(0, "arguments");
  const char *mode = argv[1];
  int64_t count = atoll(argv[4]), batch = atoll(argv[5]);
  Data data = load(argv[3], count);
  Job job = {.data = &data};
  if (sqlite3_open_v2(argv[2], &job.db, SQLITE_OPEN_READWRITE, 0)) fail(job.db, argv[2]);
  if (sqlite3_exec(job.db, argv[6], 0, 0, 0)) fail(job.db, argv[6]);
  job.begin = prepare(job.db, "BEGIN IMMEDIATE");
  job.commit = prepare(job.db, "COMMIT");
  job.advance = prepare(job.db, argv[7]);
  job.position = calloc((size_t)data.keys + 1, sizeof(int64_t));
  job.touched = calloc((size_t)data.keys + 1, sizeof(int64_t));
  prepare_chunks(&job, argc - 8, argv + 8);
  double *groups = calloc((size_t)(count / batch + 1), sizeof(double));
  if (!groups || !job.position || !job.touched) fail(0, "memory");

  int64_t n = 0;
  double cpu_before = cpu(), started = now(), before = started;
  for (int64_t i = 0; i < count; i += batch) {
    run_batch(&job, mode, i, i + batch < count ? i + batch : count);
    double after = now();
    groups[n++] = after - before;
    before = after;
  }
  int left, done;
  if (sqlite3_wal_checkpoint_v2(job.db, 0, SQLITE_CHECKPOINT_TRUNCATE, &left, &done)) {
    fail(job.db, "the final checkpoint");
  }
  double seconds = now() - started, cpu_seconds = cpu() - cpu_before;

  qsort(groups, (size_t)n, sizeof(double), ascending);
  printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"transactions\": %lld", seconds, cpu_seconds,
         (long long)n);
  printf(", \"p50_us\": %.1f, \"p99_us\": %.1f", quantile_us(groups, n, 0.50),
         quantile_us(groups, n, 0.99));
  printf(", \"pragmas\": {\"threads\": \"%d\"", sqlite3_threadsafe());
  const char *pragmas[] = {"journal_mode", "synchronous", "page_size", "cache_size",
                           "wal_autocheckpoint", "foreign_keys", "temp_store", "mmap_size"};
  for (size_t i = 0; i < sizeof pragmas / sizeof *pragmas; i++) print_pragma(job.db, pragmas[i]);
  printf("}}\n");
  return sqlite3_close_v2(job.db) != SQLITE_OK;
}
