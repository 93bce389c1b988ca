// SPDX-License-Identifier: Apache-2.0
// List: a page of a sorted walk. A page token is the path of the last file of the page before, so nothing is kept between
// two pages, and a tree that changes meanwhile loses no file that was there all the time.
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "methods.h"
#include "names.h"
#include "path.h"

enum {
    PAGE_FILES = 100,
    PAGE_FILES_MAX = 1000,
    // what a page may hold before its last file and its token
    PAGE_BYTES = FILES_DATA_MAX - 16 * 1024,
    BELOW_MAX = 8192,
};

struct walk {
    struct op *op;
    char below[BELOW_MAX]; // the path below the folder
    const char *glob;      // NULL: everything
    bool by_path;          // compare the path below the folder
    const char *after;     // "": from the start
    uint32_t depth_max;
    size_t files_max, bytes;
    bool full;
    char last[BELOW_MAX];
    size_t n;
    struct described *file[PAGE_FILES_MAX]; // owned: n of them, with the path behind each
};

static unsigned
rank(char c)
{
    return c == '\0' ? 0 : c == '/' ? 1 : 1U + (unsigned char)c;
}

// Compares paths component by component: '/' sorts before every other byte, and the end before '/'.
static int
compare(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b)
        a++, b++;
    return (rank(*a) > rank(*b)) - (rank(*a) < rank(*b));
}

static bool
matches(const struct walk *w, const char *name)
{
    return w->glob == NULL ||
           fnmatch(w->glob, w->by_path ? w->below : name, FNM_PERIOD | FNM_PATHNAME) == 0;
}

static int
add(struct walk *w, int folder, const char *name, struct err *e)
{
    size_t n = strlen(w->below);
    struct described *f = malloc(sizeof *f + n + 1);
    if (f == NULL)
        return err_sys(e, ENOMEM, "list a folder");
    char *path = (char *)(f + 1);
    memcpy(path, w->below, n + 1);
    if (describe_at(folder, name, path, f, e) < 0) { // it was removed meanwhile
        free(f);
        return e->sys == ENOENT ? 0 : err_errno(e);
    }
    f->m.modify_time = &f->time;
    w->file[w->n++] = f;
    w->bytes += n + f->m.target.len + 96;
    (void)snprintf(w->last, sizeof w->last, "%s", w->below);
    return 0;
}

static int walk_folder(struct walk *w, int folder, uint32_t depth, struct err *e);

static int
enter(struct walk *w, int folder, const char *name, uint32_t depth, struct err *e)
{
    int auto_close fd =
        openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        return walk_folder(w, fd, depth, e);
    // not a folder, gone, or not for us
    if (errno == ENOTDIR || errno == ELOOP || errno == ENOENT || errno == EACCES)
        return 0;
    return file_err(e, errno, "list", w->below);
}

static int
visit(struct walk *w, int folder, const char *name, uint32_t depth, struct err *e)
{
    int after = w->after[0] != '\0' ? compare(w->below, w->after) : 1;
    size_t n = strlen(w->below);
    // what the token names, and what lies before it, was listed; but not what lies below
    bool holds = strncmp(w->after, w->below, n) == 0 && w->after[n] == '/';
    if (after > 0 && matches(w, name)) {
        w->full = w->n == w->files_max || w->bytes > PAGE_BYTES;
        int r = w->full ? 0 : add(w, folder, name, e);
        if (r < 0 || w->full)
            return r;
    }
    if (depth >= w->depth_max || (after < 0 && !holds))
        return 0;
    return enter(w, folder, name, depth + 1, e);
}

static int
walk_folder(struct walk *w, int folder, uint32_t depth, struct err *e)
{
    struct names all = {0};
    size_t before = strlen(w->below);
    int r = names_read(folder, &all, e);
    for (size_t i = 0; r == 0 && i < all.n && !w->full; i++) {
        int n = snprintf(w->below + before, sizeof w->below - before, "%s%s", before > 0 ? "/" : "",
                         all.name[i]);
        if (n < (int)(sizeof w->below - before))
            r = visit(w, folder, all.name[i], depth, e);
        w->below[before] = '\0';
        if (r == 0)
            r = op_busy(w->op, e);
    }
    names_free(&all);
    return r;
}

static int
send_page(struct walk *w, struct err *e)
{
    Stockade__V1__FileServiceListResponse answer = STOCKADE__V1__FILE_SERVICE_LIST_RESPONSE__INIT;
    Stockade__V1__File *files[PAGE_FILES_MAX];
    for (size_t i = 0; i < w->n; i++)
        files[i] = &w->file[i]->m;
    answer.n_files = w->n;
    answer.files = files;
    if (w->full)
        answer.next_page_token = (ProtobufCBinaryData){strlen(w->last), (uint8_t *)w->last};
    return op_message(w->op, &answer.base, e);
}

static int
text_of(const ProtobufCBinaryData *from, char *out, size_t size, const char *field, struct err *e)
{
    if (from->len >= size || memchr(from->data, 0, from->len) != NULL)
        return err_field(e, field, "is too long or contains NUL");
    if (from->len > 0)
        memcpy(out, from->data, from->len);
    out[from->len] = '\0';
    return 0;
}

int
files_list(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceListRequest *m =
        (const Stockade__V1__FileServiceListRequest *)request;
    static struct walk w; // of this process, which does nothing else
    static char after[BELOW_MAX + 1];
    static char glob[1025];
    struct path p;
    int r = path_read(&m->path, &p, e);
    if (r == 0)
        r = text_of(&m->page_token, after, sizeof after, "page_token", e);
    if (r == 0)
        r = text_of(&m->glob, glob, sizeof glob, "glob", e);
    if (r < 0)
        return r;
    w.op = op;
    w.glob = glob[0] != '\0' ? glob : NULL;
    w.by_path = strchr(glob, '/') != NULL;
    w.after = after;
    w.depth_max = m->depth != 0 ? m->depth : 1;
    w.files_max = m->page_size == 0 ? PAGE_FILES : m->page_size;
    w.files_max = w.files_max < PAGE_FILES_MAX ? w.files_max : PAGE_FILES_MAX;
    int auto_close folder = path_open(p.text, O_RDONLY | O_DIRECTORY | O_NONBLOCK, e);
    if (folder < 0)
        return folder;
    r = walk_folder(&w, folder, 1, e);
    if (r == 0)
        r = send_page(&w, e);
    for (size_t i = 0; i < w.n; i++)
        free(w.file[i]);
    return r;
}
