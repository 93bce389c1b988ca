// SPDX-License-Identifier: Apache-2.0
// See fs_watch.h.
#include "fs_watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/auto.h"
#include "proto/plural.h"
#include "proto/wire.h"
#include "feed.h"
#include "json.h"
#include "remote.h"
#include "sink.h"
#include "text.h"

enum { ARENA_MAX = 512 * 1024, TEXT_MAX = 8200 };

struct view {
    const struct command *c;
    const struct options *o;
    struct arena *arena;
    bool begun;
    uint64_t unwatched;
    int code;
    struct stockade_error error; // of a message that is not valid
};

static const char *const changes[][2] = {{"unknown", "UNKNOWN"}, {"create", "CREATE"},
                                         {"write", "WRITE"},     {"remove", "REMOVE"},
                                         {"rename", "RENAME"},   {"chmod", "CHMOD"}};

static const char *
name_of(Stockade__V1__FileChange change, bool upper)
{
    return changes[(unsigned)change < sizeof changes / sizeof changes[0] ? change : 0][upper];
}

static const char *
text_of(const ProtobufCBinaryData *from, char out[TEXT_MAX])
{
    char plain[TEXT_MAX];
    (void)snprintf(plain, sizeof plain, "%.*s", (int)from->len,
                   from->data != NULL ? (const char *)from->data : "");
    return text_clean(plain, out, TEXT_MAX);
}

static int
print_event(const struct view *v, const Stockade__V1__FileEvent *event)
{
    char path[TEXT_MAX];
    char from[TEXT_MAX];
    if (v->o->json) {
        json_t *j = json_pack("{ss sb}", "change", name_of(event->change, true), "folder",
                              (int)event->folder);
        (void)json_set_bytes(j, "path", event->path.data, event->path.len);
        if (event->before.len > 0)
            (void)json_set_bytes(j, "before", event->before.data, event->before.len);
        return json_put(j);
    }
    const char *slash = event->folder ? "/" : "";
    (void)printf("%-6s ", name_of(event->change, false));
    if (event->before.len > 0)
        (void)printf("%s%s -> ", text_of(&event->before, from), slash);
    (void)printf("%s%s\n", text_of(&event->path, path), slash);
    return EXIT_OK;
}

// What is no change: in JSON a line of its own, in text a line on stderr.
static int
print_note(const struct view *v, const char *name, uint64_t n, const char *text)
{
    if (v->o->json)
        return json_put(json_pack("{sI}", name, (json_int_t)n));
    (void)fprintf(stderr, "stockade %s: %s\n", v->c->name, text);
    return EXIT_OK;
}

static int
print_notes(struct view *v, const Stockade__V1__FileServiceWatchResponse *m)
{
    char text[128];
    int code = EXIT_OK;
    if (!v->begun) {
        (void)snprintf(text, sizeof text, "watching %" PRIu64 " %s", m->folders,
                       plural(m->folders, "folder", "folders"));
        code = print_note(v, "watching", m->folders, text);
        v->begun = true;
    }
    if (code == EXIT_OK && m->overflow)
        code = print_note(v, "overflow", 1, "changes were lost; list the folder again");
    if (code != EXIT_OK || m->unwatched == v->unwatched)
        return code;
    v->unwatched = m->unwatched;
    (void)snprintf(text, sizeof text, "%" PRIu64 " %s not watched: too many, or not readable",
                   m->unwatched, plural(m->unwatched, "folder is", "folders are"));
    return print_note(v, "unwatched", m->unwatched, text);
}

static int
on_message(void *cookie, const void *bytes, size_t n)
{
    struct view *v = cookie;
    ProtobufCMessage *m = NULL;
    struct err why;
    arena_reset(v->arena);
    if (wire_unpack(&stockade__v1__file_service_watch_response__descriptor, bytes, n, v->arena, &m,
                    &why) < 0) {
        v->error = (struct stockade_error){.code = STOCKADE_DATA_LOSS};
        (void)snprintf(v->error.text, sizeof v->error.text, "read a response: %s", why.text);
        return 1;
    }
    const Stockade__V1__FileServiceWatchResponse *watched =
        (const Stockade__V1__FileServiceWatchResponse *)m;
    v->code = print_notes(v, watched);
    for (size_t i = 0; i < watched->n_events && v->code == EXIT_OK; i++)
        v->code = print_event(v, watched->events[i]);
    if (v->code == EXIT_OK)
        v->code = cli_flush(v->c);
    return v->code;
}

int
fs_watch_run(struct stockade *s, const struct command *c, const struct options *o,
             const char *sandbox, const char *path)
{
    Stockade__V1__FileServiceWatchRequest m = STOCKADE__V1__FILE_SERVICE_WATCH_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    struct view v = {.c = c, .o = o, .arena = a};
    const struct feed_options feeding = {.s = s, .outlet = true};
    struct stockade_error e = {0};
    m.sandbox_id = sandbox;
    m.path = wire_bytes(path, strlen(path));
    m.recursive = o->recursive;
    struct feed *feed = a != NULL ? feed_start(&feeding) : NULL;
    if (feed == NULL)
        return EXIT_PROBLEM;
    int rc = remote_watch(s, REMOTE_METHOD("Watch"), &m.base, on_message, &v, &e);
    (void)feed_stop(feed);
    if (v.error.code != 0)
        return cli_fail(c, "", &v.error);
    if (v.code != EXIT_OK)
        return v.code;
    if (rc < 0 && sink_is_gone())
        return EXIT_PIPE;
    return rc < 0 ? cli_fail(c, "", &e) : EXIT_OK;
}
