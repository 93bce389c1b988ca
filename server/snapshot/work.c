// SPDX-License-Identifier: Apache-2.0
// See work.h.
#include "work.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "server/store/store.h"

enum { STEP_BYTES = 128 };

struct work *
work_ref(struct work *w)
{
    if (w != NULL)
        w->refs++;
    return w;
}

static void
step_clear(struct work_step *s)
{
    for (uint32_t i = 0; i < s->reached_n; i++)
        free(s->reached[i]);
    free(s->reached);
    free(s->command);
}

void
work_unref(struct work *w)
{
    if (w == NULL || --w->refs > 0)
        return;
    for (uint32_t i = 0; i < w->n; i++)
        step_clear(&w->step[i]);
    free(w->step);
    free(w);
}

struct work *
work_new(void)
{
    struct work *w = calloc(1, sizeof *w);
    if (w != NULL)
        w->refs = 1;
    return w;
}

static bool
add_step(struct work *w, const struct work_step *from)
{
    struct work_step *more = realloc(w->step, (w->n + 1) * sizeof *more);
    struct work_step s = *from;
    if (more == NULL)
        return false;
    w->step = more;
    s.reached_n = 0;
    s.command = strdup(from->command);
    s.reached = calloc(from->reached_n + 1, sizeof *s.reached);
    bool good = s.command != NULL && s.reached != NULL;
    for (uint32_t i = 0; good && i < from->reached_n; i++) {
        good = (s.reached[i] = strdup(from->reached[i])) != NULL;
        s.reached_n += good;
    }
    if (good)
        w->step[w->n++] = s;
    else
        step_clear(&s);
    return good;
}

static size_t
bytes_of(const struct work_step *s)
{
    size_t n = STEP_BYTES + strlen(s->command);
    for (uint32_t i = 0; i < s->reached_n; i++)
        n += strlen(s->reached[i]) + sizeof(void *);
    return n;
}

void
work_add(struct work *w, const struct work_step *s, size_t most)
{
    const size_t bytes = bytes_of(s);
    if (bytes <= most && add_step(w, s))
        w->bytes += bytes;
    else
        w->omitted++;
}

struct work *
work_copy(const struct work *w)
{
    struct work *made = w == NULL ? NULL : work_new();
    for (uint32_t i = 0; made != NULL && i < w->n; i++)
        work_add(made, &w->step[i], SIZE_MAX);
    if (made != NULL)
        made->omitted += w->omitted;
    return made;
}

// ---- as a message

static bool
step_message(Stockade__Work__Layer *to, const struct work_step *s, struct arena *a)
{
    Stockade__Work__Step *m = wire_make(a, &stockade__work__step__descriptor);
    if (m == NULL)
        return false;
    m->command = s->command;
    m->end_ms = s->end_ms;
    m->outcome = s->outcome;
    m->exit_code = s->exit_code;
    m->reached = (const char **)(uintptr_t)s->reached; // the type of protobuf-c
    m->n_reached = s->reached_n;
    m->connections = s->connections;
    to->steps[to->n_steps++] = m;
    return true;
}

static Stockade__Work__Layer *
layer_message(const struct work *w, struct arena *a)
{
    Stockade__Work__Layer *m = wire_make(a, &stockade__work__layer__descriptor);
    const uint32_t n = w == NULL ? 0 : w->n;
    if (m == NULL || (m->steps = arena_alloc(a, (n + 1) * sizeof(void *))) == NULL)
        return NULL;
    m->omitted = w == NULL ? 0 : w->omitted;
    for (uint32_t i = 0; i < n; i++)
        if (!step_message(m, &w->step[i], a))
            return NULL;
    return m;
}

Stockade__Work__Work *
work_message(struct work *const *of, uint32_t n, struct arena *a)
{
    Stockade__Work__Work *m = wire_make(a, &stockade__work__work__descriptor);
    if (m == NULL || (m->layers = arena_alloc(a, (n + 1) * sizeof(void *))) == NULL)
        return NULL;
    m->version = WORK_VERSION;
    for (uint32_t i = 0; i < n; i++)
        if ((m->layers[m->n_layers++] = layer_message(of[i], a)) == NULL)
            return NULL;
    return m;
}

// The last step of the layer with the most of them.
static bool
omit_one(Stockade__Work__Work *m)
{
    Stockade__Work__Layer *most = NULL;
    for (size_t i = 0; i < m->n_layers; i++)
        if (m->layers[i]->n_steps > 0 && (most == NULL || m->layers[i]->n_steps > most->n_steps))
            most = m->layers[i];
    if (most == NULL)
        return false;
    most->n_steps--;
    most->omitted++;
    return true;
}

uint8_t *
work_pack(Stockade__Work__Work *m, size_t most, size_t *n)
{
    while ((*n = stockade__work__work__get_packed_size(m)) > most && omit_one(m))
        ;
    uint8_t *bytes = *n > most ? NULL : malloc(*n + 1);
    if (bytes != NULL)
        (void)stockade__work__work__pack(m, bytes);
    return bytes;
}

int
work_unpack(const struct stored *r, struct arena *a, Stockade__Work__Work **out, struct err *e)
{
    ProtobufCMessage *m = NULL;
    struct err why;
    if (wire_unpack(&stockade__work__work__descriptor, r->about, r->about_n, a, &m, &why) < 0)
        return err_set(e, ERR_DATA_LOSS, "the description of %s is damaged: %s", r->name, why.text);
    Stockade__Work__Work *w = (Stockade__Work__Work *)m;
    if (w->version > WORK_VERSION) {
        int rc = err_set(e, ERR_FAILED_PRECONDITION,
                         "%s is of version %u, and this broker knows up to %d", r->name, w->version,
                         WORK_VERSION);
        err_detail(e, "NEWER", r->id, "start a newer broker");
        return rc;
    }
    *out = w;
    return 0;
}

struct work *
work_of_layer(const Stockade__Work__Work *m, uint32_t layer)
{
    const Stockade__Work__Layer *l = layer < m->n_layers ? m->layers[layer] : NULL;
    struct work *w = l == NULL || (l->n_steps == 0 && l->omitted == 0) ? NULL : work_new();
    if (w == NULL)
        return NULL;
    w->omitted = l->omitted;
    for (size_t i = 0; i < l->n_steps; i++) {
        const Stockade__Work__Step *s = l->steps[i];
        const struct work_step step = {.command = (char *)(uintptr_t)s->command,
                                       .end_ms = s->end_ms,
                                       .outcome = s->outcome,
                                       .exit_code = s->exit_code,
                                       .reached = (char **)(uintptr_t)s->reached,
                                       .reached_n = (uint32_t)s->n_reached,
                                       .connections = s->connections};
        work_add(w, &step, SIZE_MAX);
    }
    return w;
}
