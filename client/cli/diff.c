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

enum { TEXT_MAX = 4 * 4096 };

struct showing {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    const char *sandbox, *from, *to;
    struct sink out;
    json_t *all; // NULL: no JSON
};

static const char *
name_of_kind(uint32_t kind)
{
    static const char *const names[] = {"UNKNOWN", "ADDED", "CHANGED", "REMOVED"};
    return names[kind < sizeof names / sizeof names[0] ? kind : 0];
}

static const char *
name_of_type(uint32_t type)
{
    static const char *const names[] = {"unknown", "file", "folder", "link", "other"};
    return names[type < sizeof names / sizeof names[0] ? type : 0];
}

// ---- as JSON

static json_t *
json_of_side(const struct stockade_changed_file *file)
{
    char mode[8], type[16];
    if (file->type == STOCKADE_FILE_NONE)
        return json_null();
    (void)snprintf(mode, sizeof mode, "%04o", file->mode & 07777);
    (void)snprintf(type, sizeof type, "%s", name_of_type(file->type));
    for (char *at = type; *at != '\0'; at++)
        *at = (char)(*at - 'a' + 'A');
    json_t *j = json_pack("{ss sI ss}", "type", type, "size", (json_int_t)file->size, "mode", mode);
    if (file->target.n > 0)
        (void)json_set_bytes(j, "target", file->target.bytes, file->target.n);
    return j;
}

json_t *
diff_json(const struct stockade_change *c)
{
    json_t *j = json_pack("{ss so so sb sb}", "kind", name_of_kind(c->kind), "before",
                          json_of_side(&c->before), "after", json_of_side(&c->after), "contents",
                          (int)c->contents, "unreadable", (int)c->unreadable);
    (void)json_set_bytes(j, "path", c->path.bytes, c->path.n);
    return j;
}

// ---- as text

// "0644 12", or "folder 0755"
static void
side(const struct stockade_changed_file *file, char *out, size_t n)
{
    char number[32] = "";
    const bool plain = file->type == STOCKADE_FILE_REGULAR;
    if (plain)
        (void)snprintf(number, sizeof number, " %" PRIu64, file->size);
    (void)snprintf(out, n, "%s%s%04o%s", plain ? "" : name_of_type(file->type), plain ? "" : " ",
                   file->mode & 07777, number);
}

void
diff_print(FILE *to, const struct stockade_change *c)
{
    static const char signs[] = "?+~-";
    char path[TEXT_MAX], before[64] = "", after[64] = "", what[160];
    if (c->before.type != STOCKADE_FILE_NONE)
        side(&c->before, before, sizeof before);
    if (c->after.type != STOCKADE_FILE_NONE)
        side(&c->after, after, sizeof after);
    bool both = before[0] != '\0' && after[0] != '\0' && strcmp(before, after) != 0;
    (void)snprintf(what, sizeof what, "%s%s%s", both || after[0] == '\0' ? before : "",
                   both ? " -> " : "", after);
    (void)fprintf(to, "%c %-24s %s%s\n", signs[c->kind < 4 ? c->kind : 0], what,
                  text_clean(c->path.bytes, path, sizeof path),
                  c->unreadable ? "  (unreadable)" : "");
}

static int
on_data(void *cookie, const void *bytes, size_t n)
{
    return sink_output(cookie, STOCKADE_STDOUT, bytes, n);
}

static bool
is_file(const struct stockade_changed_file *file)
{
    return file->type == STOCKADE_FILE_NONE || file->type == STOCKADE_FILE_REGULAR;
}

// What has no text is named on stderr, so that the output is a patch.
static int
print_patch(struct showing *w, const struct stockade_change *c)
{
    Stockade__V1__SnapshotServiceDiffFileRequest m =
        STOCKADE__V1__SNAPSHOT_SERVICE_DIFF_FILE_REQUEST__INIT;
    struct stockade_error e = {0};
    bool binary = false;
    m.sandbox_id = w->sandbox;
    m.first = w->from;
    m.second = w->to;
    m.path = (ProtobufCBinaryData){c->path.n, (uint8_t *)(uintptr_t)c->path.bytes};
    const bool files = is_file(&c->before) && is_file(&c->after);
    int rc = 0;
    if (files)
        rc = remote_patch(w->s, &m, &(struct remote_sink){.data = on_data, .cookie = &w->out},
                          &binary, &e);
    if (rc > 0)
        return sink_broken(&w->out, w->c, EXIT_PROBLEM);
    if (rc < 0 && strcmp(e.reason, "TEXT_TOO_LARGE") != 0)
        return cli_fail(w->c, "", &e);
    if (rc < 0 || binary || !files) {
        char path[TEXT_MAX];
        (void)fprintf(stderr, "%s: %s %s\n", text_clean(c->path.bytes, path, sizeof path),
                      rc < 0   ? "too large for a text"
                      : binary ? "binary"
                               : "no file",
                      c->kind == STOCKADE_CHANGE_ADDED     ? "added"
                      : c->kind == STOCKADE_CHANGE_REMOVED ? "removed"
                                                           : "changed");
    }
    return EXIT_OK;
}

// ---- the pages

static int
show(struct showing *w, const struct stockade_changes *page)
{
    int code = EXIT_OK;
    for (size_t i = 0; i < page->n && code == EXIT_OK; i++) {
        if (w->o->patch)
            code = print_patch(w, &page->items[i]);
        else if (w->all != NULL)
            (void)json_array_append_new(w->all, diff_json(&page->items[i]));
        else
            diff_print(stdout, &page->items[i]);
    }
    return code;
}

static int
show_all(struct showing *w)
{
    struct stockade_error e = {0};
    const struct stockade_states states = {w->sandbox, w->from, w->to, w->o->path};
    const struct stockade_changes *page = NULL, *next = NULL;
    int code = EXIT_OK;
    do {
        if (stockade_diff(w->s, &states, page != NULL ? &page->next_page : NULL, &next, &e) < 0)
            code = cli_fail(w->c, "", &e);
        else
            code = show(w, next);
        stockade_free(page);
        page = next;
        next = NULL;
    } while (code == EXIT_OK && page->next_page.n > 0);
    stockade_free(page);
    return code;
}

int
diff_show(const struct command *c, const struct options *o, struct stockade *s, const char *sandbox,
          const char *from, const char *to)
{
    struct showing w = {
        .c = c, .o = o, .s = s, .sandbox = sandbox, .from = from, .to = to != NULL ? to : ""};
    w.all = o->json && !o->patch ? json_array() : NULL;
    int code = show_all(&w);
    if (code == EXIT_OK && w.all != NULL)
        return json_put_list(w.all);
    json_decref(w.all);
    return code == EXIT_OK ? cli_flush(c) : code;
}
