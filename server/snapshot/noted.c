// SPDX-License-Identifier: Apache-2.0
// See noted.h.
#include "noted.h"

#include <stdio.h>
#include <string.h>

#include "proto/now.h"
#include "server/sandbox/job.h"
#include "server/sandbox/observers.h"
#include "server/sandbox/sandbox.h"
#include "snapshots_private.h"
#include "stockade/v1/record.pb-c.h"

enum { COMMAND_MAX = 1024 };

// The number of the observer, for job_notes(): not NULL if the job is to be noted.
static unsigned observer;

static size_t
quote(const char *arg, char *out, size_t room)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
    size_t n = 0;
    if (arg[0] != '\0' && arg[strspn(arg, plain)] == '\0')
        return (size_t)snprintf(out, room, "%s", arg);
    out[n++] = '"';
    for (const char *p = arg; *p != '\0' && n + 8 < room; p++) {
        const unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            n += (size_t)snprintf(out + n, room - n, "\\%c", c);
        else if (c == '\n')
            n += (size_t)snprintf(out + n, room - n, "\\n");
        else if (c < 0x20 || c == 0x7f)
            n += (size_t)snprintf(out + n, room - n, "\\u%04x", c);
        else
            out[n++] = (char)c;
    }
    out[n++] = '"';
    out[n] = '\0';
    return n;
}

// job_view() has bounded each argument, and cut it between characters.
static void
command_of(const struct job_view *v, char out[COMMAND_MAX])
{
    enum { ROOM = 6 * JOB_SHOWN_ARG_BYTES + 16 };
    char one[ROOM];
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < v->args_n && i < JOB_SHOWN_ARGS; i++) {
        size_t n = quote(v->args[i], one, sizeof one);
        if (at + n + 5 > COMMAND_MAX) {
            (void)snprintf(out + at, COMMAND_MAX - at, " ...");
            return;
        }
        at += (size_t)snprintf(out + at, COMMAND_MAX - at, "%s%s", i > 0 ? " " : "", one);
    }
}

// Of all layers, and of now.
static size_t
bytes_noted(const struct snapshots_box *b)
{
    size_t bytes = b->now->bytes;
    for (unsigned i = 0; i < b->layers_n; i++)
        bytes += b->layer[i].work != NULL ? b->layer[i].work->bytes : 0;
    return bytes;
}

static void
note(struct snapshots_box *b, const struct work_step *s)
{
    if (b->now == NULL && (b->now = work_new()) == NULL)
        return;
    const size_t noted = bytes_noted(b);
    work_add(b->now, s, noted < WORK_BYTES_MAX ? WORK_BYTES_MAX - noted : 0);
}

static void
on_begun(void *cookie, struct job *j, const struct job_spec *spec)
{
    *job_notes(j, observer) = spec->one_shot ? NULL : cookie;
}

static void
on_ended(void *cookie, struct job *j)
{
    struct sandbox *s = job_sandbox(j);
    struct snapshots_box *b = NULL;
    (void)cookie;
    if (job_note(j, observer) == NULL || s == NULL || (b = snapshots_box_of(s)) == NULL)
        return;
    struct job_view v;
    char command[COMMAND_MAX];
    const struct job_result *r = job_result(j);
    job_view(j, &v);
    command_of(&v, command);
    const struct work_step step = {
        .command = command,
        .end_ms = now_wall_ms(),
        .outcome = r->outcome,
        .exit_code = r->exit_code,
        .reached = r->record == NULL ? NULL : (char **)(uintptr_t)r->record->reached,
        .reached_n = r->record == NULL ? 0 : (uint32_t)r->record->n_reached,
        .connections = r->record == NULL ? 0 : r->record->reached_total};
    note(b, &step);
}

void
noted_observe(struct sandboxes *all)
{
    static int noted;
    const struct observer o = {.cookie = &noted, .job_begun = on_begun, .job_ended = on_ended};
    observer = observers_add(sandboxes_observers(all), &o);
}

Stockade__Work__Work *
noted_message(struct snapshots_box *b, uint32_t layer, struct arena *a)
{
    struct work *chain[LAYERS_DEPTH];
    uint32_t n = LAYERS_DEPTH;
    const struct layer *l = NULL;
    for (uint32_t at = layer; n > 0 && (l = layer_of(b, at)) != NULL; at = l->below)
        chain[--n] = l->work;
    return work_message(chain + n, LAYERS_DEPTH - n, a);
}
