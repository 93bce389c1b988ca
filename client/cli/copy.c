// SPDX-License-Identifier: Apache-2.0
// cp: files and folders between this machine and a sandbox or a volume.
//
// A folder goes as a tar archive. A thread of this command packs or unpacks it, on the other end of a pipe (archive.h), so
// nothing is stored in between. What comes from a sandbox is hostile: it is unpacked below the folder alone, by
// descriptors, and a link that leads out of it is refused.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "archive.h"
#include "cli.h"
#include "commands.h"
#include "copy.h"
#include "draft.h"
#include "remote.h"
#include "sink.h"
#include "units.h"

enum { ARENA_MAX = 512 * 1024, PATH_TEXT_MAX = 4096, SHOW_NS = 100 * 1000 * 1000 };

struct copy {
    struct stockade *s;
    const struct command *c;
    struct arena *arena;
    char sandbox[CLI_TARGET_SIZE]; // or a volume
    char path[PATH_TEXT_MAX];      // in the sandbox
    const char *local;             // here, or "-"
    bool zstd;                     // archives are compressed on the way
    bool unpack;                   // `local` is an archive
    uint64_t ratio_max;            // of one that is decompressed here or there; 0: the default
    uint64_t bytes;                // carried so far
    int64_t shown_ns;              // when the progress was shown; 0: not yet
};

// ---- progress

static void
progress(struct copy *c, size_t n)
{
    char text[32];
    int64_t now = now_ns(CLOCK_MONOTONIC);
    c->bytes += n;
    if (isatty(STDERR_FILENO) == 0 || (c->shown_ns != 0 && now - c->shown_ns < SHOW_NS))
        return;
    c->shown_ns = now;
    (void)fprintf(stderr, "\r\033[K%s", units_show_bytes(c->bytes, text, sizeof text));
}

static void
progress_end(const struct copy *c)
{
    if (c->shown_ns != 0)
        (void)fputs("\r\033[K", stderr);
}

static int
fail_here(const struct copy *c, const char *what, int sys)
{
    struct stockade_error e = {.code = STOCKADE_UNKNOWN, .sys = sys};
    (void)snprintf(e.text, sizeof e.text, "%s: %s", what, strerror(sys));
    return cli_fail(c->c, "", &e);
}

static ProtobufCBinaryData
bytes_of(const char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

static Stockade__V1__ArchiveFormat
format_of(bool compressed)
{
    return compressed ? STOCKADE__V1__ARCHIVE_FORMAT__ARCHIVE_FORMAT_TAR_ZST
                      : STOCKADE__V1__ARCHIVE_FORMAT__ARCHIVE_FORMAT_TAR;
}

// ---- the other end

// Type of what is at the path in the sandbox; UNSPECIFIED: nothing. Negative: a failure that was reported.
static int
type_there(const struct copy *c, const char *path, int *code)
{
    Stockade__V1__FileServiceStatRequest m = STOCKADE__V1__FILE_SERVICE_STAT_REQUEST__INIT;
    ProtobufCMessage *answer = NULL;
    struct stockade_error e = {0};
    m.sandbox_id = c->sandbox;
    m.path = bytes_of(path);
    m.follow = true;
    if (remote_call(c->s, REMOTE_METHOD("Stat"), &m.base,
                    &stockade__v1__file_service_stat_response__descriptor, c->arena, &answer,
                    &e) == 0)
        return (int)((const Stockade__V1__FileServiceStatResponse *)answer)->file->type;
    if (strcmp(e.reason, "FILE_NOT_FOUND") == 0)
        return STOCKADE__V1__FILE_TYPE__FILE_TYPE_UNSPECIFIED;
    *code = cli_fail(c->c, "", &e);
    return -1;
}

// The last name of a path.
static const char *
name_of(const char *path, char *out, size_t size)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    (void)snprintf(out, size, "%.*s", (int)(n - from), path + from);
    return out;
}

// Into a folder that exists, under the name of the source.
static int
settle_there(struct copy *c)
{
    char name[PATH_TEXT_MAX];
    int code = EXIT_OK;
    int type = type_there(c, c->path, &code);
    if (type < 0)
        return code;
    size_t n = strlen(c->path);
    if (type != STOCKADE__V1__FILE_TYPE__FILE_TYPE_FOLDER || strcmp(c->local, "-") == 0)
        return EXIT_OK;
    (void)name_of(c->local, name, sizeof name);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "/") == 0)
        return EXIT_OK;
    while (n > 0 && c->path[n - 1] == '/')
        n--;
    (void)snprintf(c->path + n, sizeof c->path - n, "/%s", name);
    return EXIT_OK;
}

// A file is not copied to "new/", because a folder was meant.
static int
check_file_name(const struct copy *c)
{
    struct stockade_error e = {.code = STOCKADE_NOT_FOUND,
                               .hint = "make it with 'stockade fs mkdir'"};
    const size_t n = strlen(c->path);
    if (n == 0 || c->path[n - 1] != '/')
        return EXIT_OK;
    (void)snprintf(e.text, sizeof e.text, "there is no folder %.200s", c->path);
    return cli_fail(c->c, "", &e);
}

// ---- to the sandbox

struct file_source {
    struct copy *c;
    int fd;
    uint8_t head[4]; // bytes that were read before the others
    size_t head_n;
};

static ssize_t
read_file(void *cookie, void *bytes, size_t n)
{
    struct file_source *f = cookie;
    ssize_t got = f->head_n < n ? (ssize_t)f->head_n : 0;
    memcpy(bytes, f->head, (size_t)got);
    f->head_n -= (size_t)got;
    if (got == 0)
        got = remote_read_fd(&f->fd, bytes, n);
    progress(f->c, got > 0 ? (size_t)got : 0);
    return got;
}

// The first bytes, which are kept for read_file().
static int
read_head(struct file_source *f)
{
    ssize_t r = 1;
    while (f->head_n < sizeof f->head && r > 0) {
        r = remote_read_fd(&f->fd, f->head + f->head_n, sizeof f->head - f->head_n);
        f->head_n += r > 0 ? (size_t)r : 0;
    }
    return r < 0 ? (int)r : 0;
}

static int
send_file(struct copy *c, int fd, uint32_t mode)
{
    const int code = check_file_name(c);
    if (code != EXIT_OK)
        return code;
    Stockade__V1__FileServiceOpenWriteRequest m =
        STOCKADE__V1__FILE_SERVICE_OPEN_WRITE_REQUEST__INIT;
    Stockade__V1__WriteOptions how = STOCKADE__V1__WRITE_OPTIONS__INIT;
    struct file_source file = {.c = c, .fd = fd};
    struct remote_source source = {.read = read_file, .cookie = &file, .fd = fd};
    const struct remote_transfer transfer = {
        REMOTE_METHOD("OpenWrite"), &m.base,
        &stockade__v1__file_service_open_write_response__descriptor};
    ProtobufCMessage *answer = NULL;
    struct stockade_error e = {0};
    m.sandbox_id = c->sandbox;
    m.path = bytes_of(c->path);
    m.options = &how;
    how.mode = mode;
    int rc = remote_send(c->s, &transfer, &source, c->arena, &answer, &e);
    progress_end(c);
    if (source.failed != 0)
        return fail_here(c, c->local, source.failed);
    return rc < 0 ? cli_fail(c->c, "", &e) : EXIT_OK;
}

static int
fail_archive(const struct copy *c, const struct archive *a)
{
    struct stockade_error e = {.code = a->error.code, .sys = a->error.sys};
    (void)snprintf(e.text, sizeof e.text, "%s", a->error.text);
    (void)snprintf(e.reason, sizeof e.reason, "%s", a->error.reason);
    (void)snprintf(e.hint, sizeof e.hint, "%s", a->error.hint);
    return cli_fail(c->c, "", &e);
}

static void
warn_skipped(const struct copy *c, uint64_t skipped)
{
    if (skipped > 0)
        (void)fprintf(
            stderr, "stockade %s: %" PRIu64 " %s left out\n", c->c->name, skipped,
            plural(skipped, "FIFO, socket or device was", "FIFOs, sockets or devices were"));
}

// An archive as it is: its first bytes say whether it is compressed.
static int
send_archive(struct copy *c, int fd)
{
    static const uint8_t zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    Stockade__V1__FileServiceUploadRequest m = STOCKADE__V1__FILE_SERVICE_UPLOAD_REQUEST__INIT;
    struct file_source file = {.c = c, .fd = fd};
    struct remote_source source = {.read = read_file, .cookie = &file, .fd = fd};
    const struct remote_transfer transfer = {
        REMOTE_METHOD("Upload"), &m.base, &stockade__v1__file_service_upload_response__descriptor};
    ProtobufCMessage *answer = NULL;
    struct stockade_error e = {0};
    const int r = read_head(&file);
    if (r < 0)
        return fail_here(c, c->local, -r);
    m.sandbox_id = c->sandbox;
    m.path = bytes_of(c->path);
    m.format = format_of(file.head_n == sizeof zstd && memcmp(file.head, zstd, sizeof zstd) == 0);
    m.ratio_max = c->ratio_max;
    int rc = remote_send(c->s, &transfer, &source, c->arena, &answer, &e);
    progress_end(c);
    if (source.failed != 0)
        return fail_here(c, c->local, source.failed);
    return rc < 0 ? cli_fail(c->c, "", &e) : EXIT_OK;
}

struct folder_source {
    struct file_source file;
    struct archive *archive;
    bool joined;
};

// At the end of the pipe it is known whether everything was packed.
static ssize_t
read_packed(void *cookie, void *bytes, size_t n)
{
    struct folder_source *f = cookie;
    ssize_t r = read_file(&f->file, bytes, n);
    if (r != 0)
        return r;
    if (!f->joined)
        (void)archive_join(f->archive);
    f->joined = true;
    return f->archive->rc < 0 ? -EIO : 0;
}

static int
send_folder(struct copy *c, int folder)
{
    Stockade__V1__FileServiceUploadRequest m = STOCKADE__V1__FILE_SERVICE_UPLOAD_REQUEST__INIT;
    struct archive a = {.folder = folder, .pack = true, .compressed = c->zstd};
    struct folder_source f = {.archive = &a, .file = {.c = c}};
    struct remote_source source = {.read = read_packed, .cookie = &f};
    const struct remote_transfer transfer = {
        REMOTE_METHOD("Upload"), &m.base, &stockade__v1__file_service_upload_response__descriptor};
    ProtobufCMessage *answer = NULL;
    struct stockade_error e = {0};
    m.sandbox_id = c->sandbox;
    m.path = bytes_of(c->path);
    m.format = format_of(c->zstd);
    m.ratio_max = UINT64_MAX; // it is ours
    f.file.fd = source.fd = archive_begin(&a);
    if (f.file.fd < 0)
        return fail_here(c, "pack files", errno);
    int rc = remote_send(c->s, &transfer, &source, c->arena, &answer, &e);
    (void)close(f.file.fd); // a thread that still packs ends with EPIPE
    if (!f.joined)
        (void)archive_join(&a);
    progress_end(c);
    if (source.failed != 0)
        return fail_archive(c, &a);
    warn_skipped(c, a.counts.skipped);
    return rc < 0 ? cli_fail(c->c, "", &e) : EXIT_OK;
}

static int
copy_in(struct copy *c)
{
    struct stat st;
    if (strcmp(c->local, "-") == 0)
        return c->unpack ? send_archive(c, STDIN_FILENO) : send_file(c, STDIN_FILENO, 0);
    int auto_close fd = open(c->local, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_here(c, c->local, errno);
    if (c->unpack && S_ISREG(st.st_mode))
        return send_archive(c, fd);
    if (c->unpack)
        return cli_usage(c->c, "--unpack: FROM is no file", "use - to unpack from a pipe");
    int code = settle_there(c);
    if (code != EXIT_OK)
        return code;
    if (S_ISDIR(st.st_mode))
        return send_folder(c, fd);
    if (!S_ISREG(st.st_mode))
        return cli_usage(c->c, "FROM is neither a file nor a folder", "use - to copy from a pipe");
    return send_file(c, fd, (st.st_mode & 0777) != 0 ? st.st_mode & 0777 : 0600);
}

// ---- from the sandbox

struct local {
    struct copy *c;
    int fd;
    int sys; // the errno of a write
};

static int
write_local(void *cookie, const void *bytes, size_t n)
{
    struct local *l = cookie;
    const char *at = bytes;
    progress(l->c, n);
    while (n > 0) {
        ssize_t w = write(l->fd, at, n);
        if (w < 0 && errno != EINTR) {
            l->sys = errno;
            return 1;
        }
        at += w > 0 ? w : 0;
        n -= w > 0 ? (size_t)w : 0;
    }
    return 0;
}

static int
set_mode(void *cookie, const Stockade__V1__File *file)
{
    const struct local *l = cookie;
    (void)fchmod(l->fd, file->mode & 0777);
    return 0;
}

// A reader of stdout that has closed it has what it needs, as for every other command.
static int
fail_write(const struct copy *c, const struct local *l)
{
    const bool piped = l->fd == STDOUT_FILENO;
    return piped && l->sys == EPIPE ? EXIT_PIPE : fail_here(c, piped ? "stdout" : c->local, l->sys);
}

static int
receive(struct copy *c, struct local *l, bool keep_mode)
{
    Stockade__V1__FileServiceReadRequest m = STOCKADE__V1__FILE_SERVICE_READ_REQUEST__INIT;
    const struct remote_sink sink = {write_local, keep_mode ? set_mode : NULL, l};
    struct stockade_error e = {0};
    m.sandbox_id = c->sandbox;
    m.path = bytes_of(c->path);
    int rc = remote_read(c->s, &m, &sink, &e);
    progress_end(c);
    if (l->sys != 0)
        return fail_write(c, l);
    return rc < 0 ? cli_fail(c->c, "", &e) : EXIT_OK;
}

static int
receive_file(struct copy *c, const char *to)
{
    struct draft d;
    int r = draft_begin(&d, to);
    if (r < 0)
        return fail_here(c, to, -r);
    struct local l = {.c = c, .fd = d.fd};
    int code = receive(c, &l, true);
    if (code == EXIT_OK && (r = draft_keep(&d, false)) < 0)
        code = fail_here(c, to, -r);
    draft_end(&d);
    return code;
}

static int
download(struct copy *c, struct local *l, uint64_t *skipped, struct stockade_error *e)
{
    Stockade__V1__FileServiceDownloadRequest m = STOCKADE__V1__FILE_SERVICE_DOWNLOAD_REQUEST__INIT;
    const struct remote_sink sink = {.data = write_local, .cookie = l};
    m.sandbox_id = c->sandbox;
    m.path = bytes_of(c->path);
    m.format = format_of(c->zstd);
    int rc = remote_download(c->s, &m, &sink, skipped, e);
    progress_end(c);
    return rc;
}

static int
receive_folder(struct copy *c, const char *to)
{
    struct stockade_error e = {0};
    uint64_t skipped = 0;
    if (mkdir(to, 0777) < 0 && errno != EEXIST)
        return fail_here(c, to, errno);
    int auto_close folder = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct archive a = {.folder = folder, .compressed = c->zstd, .ratio_max = c->ratio_max};
    struct local l = {.c = c, .fd = folder < 0 ? -1 : archive_begin(&a)};
    if (l.fd < 0)
        return fail_here(c, to, errno);
    int rc = download(c, &l, &skipped, &e);
    (void)close(l.fd);
    (void)archive_join(&a);
    if (rc < 0)
        return cli_fail(c->c, "", &e);
    if (a.rc < 0)
        return fail_archive(c, &a);
    if (l.sys != 0)
        return fail_here(c, to, l.sys);
    warn_skipped(c, skipped);
    return EXIT_OK;
}

static int
to_stdout(struct copy *c, bool folder)
{
    struct stockade_error e = {0};
    struct local l = {.c = c, .fd = STDOUT_FILENO};
    uint64_t skipped = 0;
    if (!folder)
        return receive(c, &l, false);
    int rc = download(c, &l, &skipped, &e);
    if (l.sys != 0)
        return fail_write(c, &l);
    warn_skipped(c, skipped);
    return rc < 0 ? cli_fail(c->c, "", &e) : EXIT_OK;
}

static int
copy_out(struct copy *c)
{
    char to[2 * PATH_TEXT_MAX];
    char name[PATH_TEXT_MAX];
    struct stat st;
    int code = EXIT_OK;
    int type = type_there(c, c->path, &code);
    if (type < 0)
        return code;
    bool folder = type == STOCKADE__V1__FILE_TYPE__FILE_TYPE_FOLDER;
    if (strcmp(c->local, "-") == 0)
        return to_stdout(c, folder);
    (void)snprintf(to, sizeof to, "%s", c->local);
    (void)name_of(c->path, name, sizeof name);
    bool named = strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "/") != 0;
    if (stat(c->local, &st) == 0 && S_ISDIR(st.st_mode) && named)
        (void)snprintf(to, sizeof to, "%s/%s", c->local, name);
    return folder ? receive_folder(c, to) : receive_file(c, to);
}

int
copy_into(struct stockade *s, const struct command *command, const char *sandbox, const char *local,
          const char *path)
{
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    struct copy c = {.s = s, .c = command, .arena = a, .local = local};
    if (a == NULL)
        return EXIT_PROBLEM;
    (void)snprintf(c.sandbox, sizeof c.sandbox, "%s", sandbox);
    (void)snprintf(c.path, sizeof c.path, "%s", path);
    (void)signal(SIGPIPE, SIG_IGN); // a thread's pipe
    return copy_in(&c);
}

// ---- the command

// The colon before the path in SANDBOX:PATH or volume:NAME:PATH; NULL: a path of this machine, which has '/' before any ':'.
static const char *
end_of_target(const char *typed)
{
    static const char volume[] = "volume:";
    const bool of_volume = strncmp(typed, volume, sizeof volume - 1) == 0 &&
                           strchr(typed + sizeof volume - 1, ':') != NULL;
    const char *name = of_volume ? typed + sizeof volume - 1 : typed;
    const char *colon = strchr(name, ':');
    const bool is_target =
        colon != NULL && colon != name && memchr(name, '/', (size_t)(colon - name)) == NULL;
    return is_target ? colon : NULL;
}

int
cli_cp(const struct command *command, const struct options *o)
{
    const char *const wrong = "exactly one of FROM and TO must be SANDBOX:PATH or volume:NAME:PATH";
    bool in = end_of_target(o->args[1]) != NULL;
    if (in == (end_of_target(o->args[0]) != NULL))
        return cli_usage(command, wrong, "for example: stockade cp a.txt box:a.txt");
    const char *there = o->args[in ? 1 : 0];
    const char *colon = end_of_target(there);
    struct copy c = {.c = command,
                     .local = o->args[in ? 0 : 1],
                     .zstd = o->zstd,
                     .unpack = o->unpack,
                     .ratio_max = o->ratio};
    char typed[CLI_TARGET_SIZE];
    int code = EXIT_OK;
    if (o->unpack && !in)
        return cli_usage(command, "--unpack is for an archive of this machine",
                         "for example: stockade cp --unpack a.tar.zst box:work");
    if ((size_t)(colon - there) >= sizeof typed || strlen(colon + 1) >= sizeof c.path / 2)
        return cli_usage(command, "the name of the sandbox or volume, or the path, is too long",
                         "");
    (void)snprintf(typed, sizeof typed, "%.*s", (int)(colon - there), there);
    (void)snprintf(c.path, sizeof c.path, "%s", colon[1] != '\0' ? colon + 1 : ".");
    (void)signal(SIGPIPE, SIG_IGN); // a thread's pipe
    c.s = cli_open(command, o, &code);
    if (c.s == NULL)
        return code;
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    c.arena = a;
    if (a == NULL)
        code = EXIT_PROBLEM;
    else if (cli_find_target(c.s, command, typed, c.sandbox, &code))
        code = in ? copy_in(&c) : copy_out(&c);
    stockade_close(c.s);
    return code;
}
