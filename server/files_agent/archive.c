// SPDX-License-Identifier: Apache-2.0
// Upload and Download: trees as tar archives (proto/tar.h), compressed if the caller asks for it (proto/zst.h).
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/tar.h"
#include "proto/zst.h"
#include "methods.h"
#include "path.h"

enum { ENTRIES_MAX = 1000 * 1000 };

// Bytes on their way between an archive and packets.
struct carrying {
    struct op *op;
    size_t at, n;  // upload: what of the packet is left; download: what fills it
    bool finished; // upload: no more packets come
};

static struct tar_bounds
bounds_of(uint64_t bytes, uint64_t entries)
{
    return (struct tar_bounds){
        .bytes = bytes, .entries = entries == 0 || entries > ENTRIES_MAX ? ENTRIES_MAX : entries};
}

static Stockade__V1__ArchiveCounts
counts_of(const struct tar_counts *from)
{
    Stockade__V1__ArchiveCounts m = STOCKADE__V1__ARCHIVE_COUNTS__INIT;
    m.entries = from->entries;
    m.bytes = from->bytes;
    m.skipped = from->skipped;
    return m;
}

// An errno of a file means the same here as in the other methods.
static int
explain(struct err *e)
{
    if (e->sys == 0 || e->code == (int32_t)ERR_CANCELLED)
        return err_errno(e);
    const struct err was = *e;
    (void)file_err(e, was.sys, "", "");
    memcpy(e->text, was.text, sizeof e->text);
    return -was.sys;
}

static ssize_t
read_packets(void *cookie, void *bytes, size_t n, struct err *e)
{
    struct carrying *c = cookie;
    while (c->at == c->n && !c->finished) {
        ssize_t got = op_receive(c->op, e);
        if (got < 0)
            return got;
        c->finished = got == 0;
        c->at = 0;
        c->n = (size_t)got;
    }
    size_t part = c->n - c->at < n ? c->n - c->at : n;
    memcpy(bytes, c->op->packet.data + c->at, part);
    c->at += part;
    return (ssize_t)part;
}

static int
unpack(struct carrying *c, int folder, const Stockade__V1__FileServiceUploadRequest *m,
       struct tar_counts *counts, struct err *e)
{
    const struct tar_bounds bounds = bounds_of(m->bytes_max, m->entries_max);
    const struct tar_source packets = {read_packets, c};
    if (m->format != STOCKADE__V1__ARCHIVE_FORMAT__ARCHIVE_FORMAT_TAR_ZST)
        return tar_unpack(folder, false, &bounds, &packets, counts, e);
    struct zst_reader *z = zst_reader_new(&packets, m->ratio_max, e);
    const struct tar_source source = {zst_read, z};
    int r = z == NULL ? err_errno(e) : tar_unpack(folder, false, &bounds, &source, counts, e);
    zst_reader_free(z);
    return r;
}

int
files_upload(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceUploadRequest *m =
        (const Stockade__V1__FileServiceUploadRequest *)request;
    Stockade__V1__FileServiceUploadResponse answer =
        STOCKADE__V1__FILE_SERVICE_UPLOAD_RESPONSE__INIT;
    struct carrying c = {.op = op};
    struct tar_counts counts = {0};
    struct path p;
    int r = path_read(&m->path, &p, e);
    if (r == 0)
        r = path_make_folders(p.text, e);
    if (r < 0)
        return r;
    int auto_close folder = path_open(p.text, O_RDONLY | O_DIRECTORY, e);
    if (folder < 0)
        return folder;
    r = unpack(&c, folder, m, &counts, e);
    if (r < 0)
        return explain(e);
    Stockade__V1__ArchiveCounts result = counts_of(&counts);
    answer.counts = &result;
    return op_message(op, &answer.base, e);
}

static int
write_packets(void *cookie, const void *bytes, size_t n, struct err *e)
{
    struct carrying *c = cookie;
    const uint8_t *at = bytes;
    while (n > 0) {
        size_t part = FILES_DATA_MAX - c->n < n ? FILES_DATA_MAX - c->n : n;
        memcpy(c->op->packet.data + c->n, at, part);
        c->n += part;
        at += part;
        n -= part;
        if (c->n < FILES_DATA_MAX)
            continue;
        int r = op_data(c->op, c->n, e);
        if (r < 0)
            return r;
        c->n = 0;
    }
    return 0;
}

// A folder is packed by its descriptor, under no name; a file under its own.
static int
pack(const struct tar_sink *sink, const char *path, const struct tar_bounds *bounds,
     struct tar_counts *counts, struct err *e)
{
    struct location at = {.folder = -1};
    struct stat st;
    int auto_close fd = path_open(path, O_PATH, e);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return file_err(e, errno, "pack", path);
    if (S_ISDIR(st.st_mode)) {
        int auto_close folder = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return folder < 0 ? file_err(e, errno, "pack", path)
                          : tar_pack(folder, ".", ".", bounds, sink, counts, e);
    }
    if (!S_ISREG(st.st_mode))
        return file_not_regular(e, st.st_mode, "pack", path);
    int r = path_locate(path, false, &at, e);
    if (r < 0)
        return r;
    r = tar_pack(at.folder, at.name, at.name, bounds, sink, counts, e);
    path_leave(&at);
    return r;
}

static int
pack_compressed(const struct tar_sink *sink, const char *path, const struct tar_bounds *bounds,
                struct tar_counts *counts, struct err *e)
{
    struct zst_writer *z = zst_writer_new(sink, e);
    if (z == NULL)
        return err_errno(e);
    const struct tar_sink into = {zst_write, z};
    int r = pack(&into, path, bounds, counts, e);
    if (r == 0)
        r = zst_end(z, e);
    zst_writer_free(z);
    return r;
}

int
files_download(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceDownloadRequest *m =
        (const Stockade__V1__FileServiceDownloadRequest *)request;
    Stockade__V1__FileServiceDownloadResponse answer =
        STOCKADE__V1__FILE_SERVICE_DOWNLOAD_RESPONSE__INIT;
    const struct tar_bounds bounds = bounds_of(m->bytes_max, m->entries_max);
    struct carrying c = {.op = op};
    struct tar_counts counts = {0};
    struct path p;
    int r = path_read(&m->path, &p, e);
    if (r < 0)
        return r;
    const struct tar_sink sink = {write_packets, &c};
    bool compressed = m->format == STOCKADE__V1__ARCHIVE_FORMAT__ARCHIVE_FORMAT_TAR_ZST;
    r = (compressed ? pack_compressed : pack)(&sink, p.text, &bounds, &counts, e);
    if (r == 0 && c.n > 0)
        r = op_data(op, c.n, e);
    if (r < 0)
        return e->reason[0] == '\0' ? explain(e) : r;
    Stockade__V1__ArchiveCounts result = counts_of(&counts);
    answer.counts = &result;
    return op_message(op, &answer.base, e);
}
