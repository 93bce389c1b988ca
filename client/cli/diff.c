// SPDX-License-Identifier: Apache-2.0
// snapshot diff: what differs between two snapshots of a sandbox, or between one and the files of now. One line for each
// file, or with --patch the texts, which patch(1) understands.
#include "diff.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "remote.h"
#include "sink.h"
#include "text.h"

enum { ARENA_MAX = 512 * 1024, PAGE = 1000, PATH_TEXT_MAX = 4096, TEXT_MAX = 4 * PATH_TEXT_MAX };

struct showing {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    Stockade__V1__SnapshotServiceDiffRequest request;
    uint8_t token[PATH_TEXT_MAX]; // of the next page
    struct sink out;
    json_t *all; // NULL: no JSON
};

static ProtobufCBinaryData
bytes_of(const char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

static const char *
name_of_kind(Stockade__V1__ChangeKind kind)
{
    static const char *const names[] = {"UNKNOWN", "ADDED", "CHANGED", "REMOVED"};
    return names[(unsigned)kind < sizeof names / sizeof names[0] ? kind : 0];
}

static const char *
name_of_type(Stockade__V1__FileType type)
{
    static const char *const names[] = {"unknown", "file", "folder", "link", "other"};
    return names[(unsigned)type < sizeof names / sizeof names[0] ? type : 0];
}

// ---- as JSON

static json_t *
json_of_side(const Stockade__V1__File *file)
{
    char mode[8], type[16];
    if (file == NULL)
        return json_null();
    (void)snprintf(mode, sizeof mode, "%04o", file->mode & 07777);
    (void)snprintf(type, sizeof type, "%s", name_of_type(file->type));
    for (char *at = type; *at != '\0'; at++)
        *at = (char)(*at - 'a' + 'A');
    json_t *j = json_pack("{ss sI ss}", "type", type, "size", (json_int_t)file->size, "mode", mode);
    if (file->target.len > 0)
        (void)json_set_bytes(j, "target", file->target.data, file->target.len);
    return j;
}

static json_t *
json_of_change(const Stockade__V1__Change *c)
{
    json_t *j = json_pack("{ss so so sb sb}", "kind", name_of_kind(c->kind), "before",
                          json_of_side(c->before), "after", json_of_side(c->after), "contents",
                          (int)c->contents, "unreadable", (int)c->unreadable);
    (void)json_set_bytes(j, "path", c->path.data, c->path.len);
    return j;
}

// ---- as text

// "0644 12", or "folder 0755"
static void
side(const Stockade__V1__File *file, char *out, size_t n)
{
    char number[32] = "";
    const bool plain = file->type == STOCKADE__V1__FILE_TYPE__FILE_TYPE_FILE;
    if (plain)
        (void)snprintf(number, sizeof number, " %" PRIu64, file->size);
    (void)snprintf(out, n, "%s%s%04o%s", plain ? "" : name_of_type(file->type), plain ? "" : " ",
                   file->mode & 07777, number);
}

static void
print_change(const Stockade__V1__Change *c)
{
    static const char signs[] = "?+~-";
    char plain[PATH_TEXT_MAX], path[TEXT_MAX], before[64] = "", after[64] = "", what[160];
    (void)snprintf(plain, sizeof plain, "%.*s", (int)c->path.len,
                   c->path.data != NULL ? (const char *)c->path.data : "");
    if (c->before != NULL)
        side(c->before, before, sizeof before);
    if (c->after != NULL)
        side(c->after, after, sizeof after);
    bool both = before[0] != '\0' && after[0] != '\0' && strcmp(before, after) != 0;
    (void)snprintf(what, sizeof what, "%s%s%s", both || after[0] == '\0' ? before : "",
                   both ? " -> " : "", after);
    (void)printf("%c %-24s %s%s\n", signs[(unsigned)c->kind < 4 ? c->kind : 0], what,
                 text_clean(plain, path, sizeof path), c->unreadable ? "  (unreadable)" : "");
}

static int
on_data(void *cookie, const void *bytes, size_t n)
{
    return sink_output(cookie, STOCKADE_STDOUT, bytes, n);
}

static bool
is_file(const Stockade__V1__File *file)
{
    return file == NULL || file->type == STOCKADE__V1__FILE_TYPE__FILE_TYPE_FILE;
}

// What has no text is named on stderr, so that the output is a patch.
static int
print_patch(struct showing *w, const Stockade__V1__Change *c)
{
    Stockade__V1__SnapshotServiceDiffFileRequest m =
        STOCKADE__V1__SNAPSHOT_SERVICE_DIFF_FILE_REQUEST__INIT;
    struct stockade_error e = {0};
    bool binary = false;
    m.sandbox_id = w->request.sandbox_id;
    m.first = w->request.first;
    m.second = w->request.second;
    m.path = c->path;
    int rc = 0;
    if (is_file(c->before) && is_file(c->after))
        rc = remote_patch(w->s, &m, &(struct remote_sink){.data = on_data, .cookie = &w->out},
                          &binary, &e);
    if (rc > 0)
        return sink_broken(&w->out, w->c, EXIT_PROBLEM);
    if (rc < 0 && strcmp(e.reason, "TEXT_TOO_LARGE") != 0)
        return cli_fail(w->c, "", &e);
    if (rc < 0 || binary || !is_file(c->before) || !is_file(c->after)) {
        char plain[PATH_TEXT_MAX], path[TEXT_MAX];
        (void)snprintf(plain, sizeof plain, "%.*s", (int)c->path.len, (const char *)c->path.data);
        (void)fprintf(stderr, "%s: %s %s\n", text_clean(plain, path, sizeof path),
                      rc < 0   ? "too large for a text"
                      : binary ? "binary"
                               : "no file",
                      c->kind == STOCKADE__V1__CHANGE_KIND__CHANGE_KIND_ADDED     ? "added"
                      : c->kind == STOCKADE__V1__CHANGE_KIND__CHANGE_KIND_REMOVED ? "removed"
                                                                                  : "changed");
    }
    return EXIT_OK;
}

// ---- the pages

static int
show(struct showing *w, const Stockade__V1__SnapshotServiceDiffResponse *page)
{
    int code = EXIT_OK;
    for (size_t i = 0; i < page->n_changes && code == EXIT_OK; i++) {
        if (w->o->patch)
            code = print_patch(w, page->changes[i]);
        else if (w->all != NULL)
            (void)json_array_append_new(w->all, json_of_change(page->changes[i]));
        else
            print_change(page->changes[i]);
    }
    return code;
}

static int
show_all(struct showing *w, struct arena *a)
{
    struct stockade_error e = {0};
    ProtobufCMessage *answer = NULL;
    int code = EXIT_OK;
    do {
        arena_reset(a);
        if (remote_call(w->s, "/stockade.v1.SnapshotService/Diff", &w->request.base,
                        &stockade__v1__snapshot_service_diff_response__descriptor, a, &answer,
                        &e) < 0)
            return cli_fail(w->c, "", &e);
        const Stockade__V1__SnapshotServiceDiffResponse *page =
            (const Stockade__V1__SnapshotServiceDiffResponse *)answer;
        ProtobufCBinaryData *next = &w->request.page_token;
        next->len = page->next_page_token.len < sizeof w->token ? page->next_page_token.len : 0;
        if (next->len > 0)
            memcpy(w->token, page->next_page_token.data, next->len);
        next->data = w->token;
        code = show(w, page);
    } while (w->request.page_token.len > 0 && code == EXIT_OK);
    return code;
}

int
diff_show(const struct command *c, const struct options *o, struct stockade *s, const char *sandbox,
          const char *from, const char *to)
{
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    struct showing w = {
        .c = c, .o = o, .s = s, .request = STOCKADE__V1__SNAPSHOT_SERVICE_DIFF_REQUEST__INIT};
    if (a == NULL)
        return EXIT_PROBLEM;
    w.request.sandbox_id = sandbox;
    w.request.first = from;
    w.request.second = to != NULL ? to : "";
    w.request.page_size = PAGE;
    if (o->path != NULL)
        w.request.path = bytes_of(o->path);
    w.all = o->json && !o->patch ? json_array() : NULL;
    int code = show_all(&w, a);
    if (code == EXIT_OK && w.all != NULL)
        return json_put_list(w.all);
    json_decref(w.all);
    return code == EXIT_OK ? cli_flush(c) : code;
}
