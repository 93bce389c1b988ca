// SPDX-License-Identifier: Apache-2.0
// See queue.h. Records are only ever taken from the first segment, so those that are under way are all in it.
#include "queue.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>

#include "proto/auto.h"
#include "position.h"

enum {
    NAME_BYTES = 32,
    // 16 digits, a blank, 16 digits, a line break
    DONE_BYTES = 34,
    // two neighbours are larger than one segment, so there are fewer
    SEGMENTS_MAX = 4 * QUEUE_SEGMENTS,
};

// In front of the bytes of each record, in the byte order of the host: nobody else reads it.
struct head {
    uint32_t n;
    uint32_t crc; // of the bytes
    int64_t time_ns;
};
_Static_assert(sizeof(struct head) == 16, "the form of the file");

struct segment {
    uint64_t id;
    uint64_t size;    // bytes
    uint64_t records; // in it
};

struct queue {
    int folder, done_fd;
    int write_fd; // of the last segment; -1: none is open
    int read_fd;  // of the first segment; -1: none is open
    uint64_t bytes_max, segment_max;
    struct segment segment[SEGMENTS_MAX];
    size_t segments;
    uint64_t done, done_records;   // of the first segment: bytes and records that were delivered
    uint64_t taken, taken_records; // of the first segment behind them: under way
    size_t lost;                   // records under way whose segment was dropped
    bool torn;                     // the last segment ends with half a record
    bool starved;                  // the last record was not written
    struct queue_numbers numbers;
};

static void
close_fd(int *fd)
{
    int auto_close old = take_fd(fd);
    (void)old;
}

static void
name_of(const struct segment *s, char name[NAME_BYTES])
{
    (void)snprintf(name, NAME_BYTES, "%016" PRIx64 ".q", s->id);
}

static int
open_at(const struct queue *q, const char *name, int flags)
{
    int fd = openat(q->folder, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
}

static int
open_segment(const struct queue *q, const struct segment *s, int flags)
{
    char name[NAME_BYTES];
    name_of(s, name);
    return open_at(q, name, flags);
}

// ---- The first segment

static void
note_done(struct queue *q)
{
    char text[DONE_BYTES + 1];
    (void)snprintf(text, sizeof text, "%016" PRIx64 " %016" PRIx64 "\n",
                   q->segments > 0 ? q->segment[0].id : 0, q->done);
    if (pwrite(q->done_fd, text, DONE_BYTES, 0) != DONE_BYTES)
        q->numbers.failed++; // the next one overwrites it; until then records may come twice
}

static void
count_waiting(struct queue *q)
{
    uint64_t records = 0, bytes = 0;
    for (size_t i = 0; i < q->segments; i++) {
        records += q->segment[i].records;
        bytes += q->segment[i].size;
    }
    q->numbers.records = records - q->done_records + q->lost;
    q->numbers.bytes = bytes - q->done;
}

static void
remove_first(struct queue *q)
{
    char name[NAME_BYTES];
    name_of(&q->segment[0], name);
    close_fd(&q->read_fd);
    if (q->segments == 1)
        close_fd(&q->write_fd);
    if (unlinkat(q->folder, name, 0) < 0 && errno != ENOENT)
        q->numbers.failed++;
    q->segments--;
    memmove(q->segment, q->segment + 1, q->segments * sizeof q->segment[0]);
    q->done = q->done_records = q->taken = q->taken_records = 0;
    note_done(q);
}

// Makes room. What is under way from the segment is not dropped yet: it may arrive.
static void
drop_first(struct queue *q)
{
    q->numbers.dropped += q->segment[0].records - q->done_records - q->taken_records;
    q->lost += q->taken_records;
    remove_first(q);
}

// Removes segments of which everything was delivered, but not the one that is written to, unless its disk is full: nothing else would ever
// free what it takes.
static void
remove_delivered(struct queue *q)
{
    while (q->segments > 0 && q->taken == 0 && q->done >= q->segment[0].size &&
           (q->segments > 1 || q->starved || q->segment[0].size >= q->segment_max))
        remove_first(q);
}

// The head of the record behind what was delivered and taken. False: there is none, or the file is damaged.
static bool
read_head(struct queue *q, struct head *h)
{
    if (q->segments == 0 || q->done + q->taken >= q->segment[0].size)
        return false;
    if (q->read_fd < 0) {
        int fd = open_segment(q, &q->segment[0], O_RDONLY);
        q->read_fd = fd < 0 ? -1 : fd;
    }
    const off_t at = (off_t)(q->done + q->taken);
    return q->read_fd >= 0 && pread(q->read_fd, h, sizeof *h, at) == sizeof *h && h->n > 0 &&
           h->n <= QUEUE_RECORD_MAX && q->done + q->taken + sizeof *h + h->n <= q->segment[0].size;
}

static void
find_oldest(struct queue *q)
{
    struct head h;
    if (q->taken == 0)
        q->numbers.oldest_ns = read_head(q, &h) ? h.time_ns : 0;
}

// ---- The start

static int
by_id(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int
list_segments(struct queue *q)
{
    int fd = open_at(q, ".", O_RDONLY | O_DIRECTORY);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL)
        return fd < 0 ? fd : -ENOMEM;
    for (const struct dirent *it = NULL; (it = readdir(d)) != NULL;) {
        struct segment s = {0};
        char name[NAME_BYTES];
        s.id = strtoull(it->d_name, NULL, 16);
        name_of(&s, name);
        if (strcmp(name, it->d_name) == 0 && q->segments < SEGMENTS_MAX - 1)
            q->segment[q->segments++] = s;
    }
    (void)closedir(d);
    qsort(q->segment, q->segments, sizeof q->segment[0], by_id);
    return 0;
}

// Counts the whole records of a segment. `done`: bytes that were delivered; *done_records: how many records they are. False:
// something that is no record stands behind them; an unfinished one is none.
static bool
walk(struct segment *s, const uint8_t *bytes, uint64_t size, uint64_t done, uint64_t *done_records)
{
    struct head h;
    while (s->size + sizeof h <= size) {
        memcpy(&h, bytes + s->size, sizeof h);
        if (h.n > 0 && h.n <= QUEUE_RECORD_MAX && s->size + sizeof h + h.n > size)
            return true;
        if (h.n == 0 || h.n > QUEUE_RECORD_MAX ||
            crc32(0, bytes + s->size + sizeof h, h.n) != h.crc)
            return false;
        *done_records += s->size < done;
        s->size += sizeof h + h.n;
        s->records++;
    }
    return true;
}

// Reads a segment of an earlier start, and cuts off what is no whole record.
static void
examine(struct queue *q, struct segment *s, uint64_t done, uint64_t *done_records)
{
    struct stat st;
    int auto_close fd = open_segment(q, s, O_RDWR);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return;
    const uint64_t size = (uint64_t)st.st_size;
    void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) {
        q->numbers.failed++;
        return;
    }
    q->numbers.damaged += !walk(s, bytes, size, done, done_records);
    (void)munmap(bytes, size);
    if (s->size < size && ftruncate(fd, (off_t)s->size) < 0)
        q->numbers.failed++;
}

static void
find_records(struct queue *q)
{
    char text[DONE_BYTES + 1] = "";
    uint64_t id = 0, done = 0;
    if (pread(q->done_fd, text, DONE_BYTES, 0) != DONE_BYTES ||
        // NOLINTNEXTLINE(cert-err34-c): %16 bounds them
        sscanf(text, "%16" SCNx64 " %16" SCNx64, &id, &done) != 2)
        id = done = 0;
    while (q->segments > 0 && q->segment[0].id < id) // delivered, but not yet removed
        remove_first(q);
    if (q->segments == 0 || q->segment[0].id != id)
        done = 0;
    for (size_t i = 0; i < q->segments; i++)
        examine(q, &q->segment[i], i == 0 ? done : 0, &q->done_records);
    q->done = q->segments > 0 && done <= q->segment[0].size ? done : 0;
    if (q->done == 0)
        q->done_records = 0;
    remove_delivered(q);
    count_waiting(q);
    find_oldest(q);
}

static int
open_folder(struct queue *q, const char *folder, struct err *e)
{
    int fd = -1;
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "create %s", folder);
    q->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (q->folder < 0)
        return err_sys(e, errno, "open %s", folder);
    if (flock(q->folder, LOCK_EX | LOCK_NB) < 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: another process uses this queue", folder);
    fd = open_at(q, "done", O_RDWR | O_CREAT);
    if (fd < 0)
        return err_sys(e, fd, "open %s/done", folder);
    q->done_fd = fd;
    int r = list_segments(q);
    return r < 0 ? err_sys(e, r, "read %s", folder) : 0;
}

struct queue *
queue_open(const char *folder, uint64_t bytes_max, struct err *e)
{
    struct queue *q = calloc(1, sizeof *q);
    if (q == NULL) {
        (void)err_sys(e, ENOMEM, "open %s", folder);
        return NULL;
    }
    q->folder = q->done_fd = q->write_fd = q->read_fd = -1;
    q->bytes_max = bytes_max;
    q->segment_max = bytes_max / QUEUE_SEGMENTS;
    if (open_folder(q, folder, e) < 0) {
        queue_close(q);
        return NULL;
    }
    find_records(q);
    return q;
}

void
queue_close(struct queue *q)
{
    if (q == NULL)
        return;
    int *const all[] = {&q->folder, &q->done_fd, &q->write_fd, &q->read_fd};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        close_fd(all[i]);
    free(q);
}

// ---- Records go in

static int
begin_segment(struct queue *q)
{
    struct segment s = {.id = q->segments > 0 ? q->segment[q->segments - 1].id + 1 : 1};
    if (q->segments == 0) { // above every one that was there: `done` may still name it
        char text[DONE_BYTES + 1] = "";
        uint64_t last = 0;
        // NOLINTNEXTLINE(cert-err34-c): %16 bounds it
        if (pread(q->done_fd, text, DONE_BYTES, 0) > 0 && sscanf(text, "%16" SCNx64, &last) == 1)
            s.id = last + 1;
    }
    int fd = open_segment(q, &s, O_WRONLY | O_CREAT | O_APPEND | O_TRUNC);
    if (fd < 0)
        return fd;
    close_fd(&q->write_fd);
    q->write_fd = fd;
    q->torn = false;
    q->segment[q->segments++] = s;
    return 0;
}

// The last segment is open and has room. Drops the oldest as long as the queue would be too large.
static int
make_room(struct queue *q, uint64_t n)
{
    while (q->segments > 0 &&
           (q->numbers.bytes + q->done + n > q->bytes_max || q->segments == SEGMENTS_MAX)) {
        drop_first(q);
        count_waiting(q);
    }
    if (q->segments == 0)
        return begin_segment(q);
    const struct segment *last = &q->segment[q->segments - 1];
    if (q->torn || (last->size > 0 && last->size + n > q->segment_max))
        return begin_segment(q);
    if (q->write_fd < 0) {
        int fd = open_segment(q, last, O_WRONLY | O_APPEND);
        if (fd < 0)
            return fd;
        q->write_fd = fd;
    }
    return 0;
}

static int
append(struct queue *q, const struct head *h, const void *bytes)
{
    struct segment *last = &q->segment[q->segments - 1];
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-cast-qual): writev(2) reads it
    struct iovec parts[] = {{(void *)(uintptr_t)h, sizeof *h}, {(void *)(uintptr_t)bytes, h->n}};
    ssize_t put = writev(q->write_fd, parts, 2);
    if (put == (ssize_t)(sizeof *h + h->n)) {
        last->size += (uint64_t)put;
        last->records++;
        return 0;
    }
    int r = put < 0 ? -errno : -ENOSPC;
    q->torn = put > 0 && ftruncate(q->write_fd, (off_t)last->size) < 0;
    return r;
}

int
queue_put(struct queue *q, const void *bytes, size_t n, int64_t time_ns)
{
    if (n == 0 || n > QUEUE_RECORD_MAX)
        return -EMSGSIZE;
    const struct head h = {(uint32_t)n, (uint32_t)crc32(0, bytes, (uInt)n), time_ns};
    int r = make_room(q, sizeof h + n);
    if (r == 0)
        r = append(q, &h, bytes);
    q->starved = r < 0;
    q->numbers.failed += r < 0;
    q->numbers.accepted += r == 0;
    remove_delivered(q);
    count_waiting(q);
    find_oldest(q);
    return r;
}

// ---- Records go out

// Gives up what is left of the first segment: it cannot be read.
static void
skip_damaged(struct queue *q)
{
    struct segment *first = &q->segment[0];
    q->numbers.damaged++;
    q->numbers.dropped += first->records - q->done_records - q->taken_records;
    first->records = q->done_records + q->taken_records;
    first->size = q->done + q->taken;
    int auto_close fd = open_segment(q, first, O_WRONLY);
    if (fd < 0 || ftruncate(fd, (off_t)first->size) < 0)
        q->numbers.failed++;
}

// Appends the next record to *out. False: it is damaged, or out of memory.
static bool
take_one(struct queue *q, const struct head *h, uint8_t **out, size_t *out_n)
{
    uint8_t *more = realloc(*out, *out_n + h->n);
    if (more == NULL)
        return false;
    *out = more;
    const off_t at = (off_t)(q->done + q->taken + sizeof *h);
    if (pread(q->read_fd, more + *out_n, h->n, at) != (ssize_t)h->n ||
        crc32(0, more + *out_n, h->n) != h->crc) {
        skip_damaged(q);
        return false;
    }
    *out_n += h->n;
    q->taken += sizeof *h + h->n;
    q->taken_records++;
    return true;
}

size_t
queue_take(struct queue *q, size_t records, size_t bytes, uint8_t **out, size_t *out_n)
{
    struct head h;
    *out = NULL;
    *out_n = 0;
    remove_delivered(q);
    while (q->taken_records < records && read_head(q, &h) &&
           (q->taken_records == 0 || *out_n + h.n <= bytes))
        if (!take_one(q, &h, out, out_n))
            break;
    if (q->taken_records == 0) {
        free(*out);
        *out = NULL;
        *out_n = 0;
        if (q->segments > 0 && q->done < q->segment[0].size && !read_head(q, &h))
            skip_damaged(q);
        count_waiting(q);
    }
    return (size_t)q->taken_records;
}

void
queue_done(struct queue *q)
{
    q->lost = 0;
    q->done += q->taken;
    q->done_records += q->taken_records;
    q->taken = q->taken_records = 0;
    note_done(q);
    remove_delivered(q);
    count_waiting(q);
    find_oldest(q);
}

void
queue_again(struct queue *q)
{
    q->numbers.dropped += q->lost;
    q->lost = 0;
    q->taken = q->taken_records = 0;
    count_waiting(q);
}

const struct queue_numbers *
queue_numbers(const struct queue *q)
{
    return &q->numbers;
}
