// SPDX-License-Identifier: Apache-2.0
// See sleepers_private.h: a sandbox as a record of the store describes it (proto/sleeper.proto). The broker wrote it, and the store has checked
// its sum; but it may have been written by another version.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "proto/validate.h"
#include "proto/wire.h"
#include "server/base/log.h"
#include "server/base/server.h"
#include "server/network/counted.h"
#include "server/network/net.h"
#include "server/sandbox/image.h"
#include "server/sandbox/mounts.h"
#include "server/sandbox/sandbox.h"
#include "server/snapshot/work.h"
#include "sleepers_private.h"

enum { VERSION = 1, ARENA_MAX = 4 << 20, VOLUME_ID = 16, ENV_TEXT = 256 + 4096 + 2 };

static Google__Protobuf__Timestamp *
time_of(struct arena *a, int64_t ms)
{
    return wire_make_time(a, ms / 1000, (int32_t)(ms % 1000) * 1000000);
}

// ---- writing

static bool
add_layers(struct arena *a, const struct kept_tree *tree, Stockade__Sleeper__Sleeper *m)
{
    m->layers = arena_alloc(a, (tree->n + 1) * sizeof(void *));
    m->snapshots = arena_alloc(a, (tree->names_n + 1) * sizeof(void *));
    if (m->layers == NULL || m->snapshots == NULL)
        return false;
    m->top = tree->top;
    for (uint32_t i = 0; i < tree->n; i++) {
        Stockade__Sleeper__Layer *l = wire_make(a, &stockade__sleeper__layer__descriptor);
        if (l == NULL)
            return false;
        l->below = tree->below[i];
        m->layers[m->n_layers++] = l;
    }
    for (uint32_t i = 0; i < tree->names_n; i++) {
        Stockade__Sleeper__Name *p = wire_make(a, &stockade__sleeper__name__descriptor);
        if (p == NULL)
            return false;
        p->name = tree->names[i].name;
        p->created_ms = tree->names[i].created_ms;
        p->order = tree->names[i].order;
        p->layer = tree->names[i].layer;
        m->snapshots[m->n_snapshots++] = p;
    }
    return true;
}

static bool
add_image(struct arena *a, const struct image *from, Stockade__Sleeper__Sleeper *m)
{
    char text[ENV_TEXT];
    if (from == NULL)
        return true;
    Stockade__Sleeper__Image *to = wire_make(a, &stockade__sleeper__image__descriptor);
    const char **env = arena_alloc(a, (from->env_n + 1) * sizeof(void *));
    if (to == NULL || env == NULL)
        return false;
    to->name = arena_copy(a, from->name, strlen(from->name));
    to->workdir = arena_copy(a, from->workdir, strlen(from->workdir));
    to->env = env;
    for (uint32_t i = 0; i < from->env_n; i++) {
        int n = snprintf(text, sizeof text, "%s=%s", from->env[i].name, from->env[i].value);
        env[i] = arena_copy(a, text, (size_t)n);
        if (env[i] == NULL)
            return false;
        to->n_env++;
    }
    m->image = to;
    return to->name != NULL && to->workdir != NULL;
}

static bool
add_volumes(struct arena *a, const struct mounts *mounts, Stockade__Sleeper__Sleeper *m)
{
    const uint32_t n = mounts == NULL ? 0 : mounts->n;
    m->volume = arena_alloc(a, (n + 1) * sizeof *m->volume);
    for (uint32_t i = 0; m->volume != NULL && i < n; i++) {
        uint8_t *id = arena_alloc(a, VOLUME_ID);
        if (id == NULL)
            return false;
        memcpy(id, mounts->mount[i].volume, VOLUME_ID);
        m->volume[m->n_volume++] = (ProtobufCBinaryData){VOLUME_ID, id};
    }
    return m->volume != NULL;
}

// What is left of a limit; 0 stands for none, so one that was used up is 1.
static void
use_up(uint64_t *limit, uint64_t used)
{
    if (*limit != 0)
        *limit = *limit > used ? *limit - used : 1;
}

// Its counters begin at 0 again, so the limits become what is left of them.
static void
use_up_limits(const struct sandbox *s, Stockade__V1__NetworkPolicy *m)
{
    const uint64_t *of_rule = NULL;
    const struct net *net = sandboxes_server(s->all)->net;
    const struct relay_counted *c =
        net == NULL || !s->live ? NULL
                                : net_counted_of(net_count(net), s->slot, s->generation, &of_rule);
    if (c == NULL || m == NULL)
        return;
    use_up(&m->egress_bytes_max, c->out_bytes);
    use_up(&m->ingress_bytes_max, c->in_bytes);
    for (size_t i = 0; of_rule != NULL && i < m->n_outbound && i < NET_RULES; i++)
        use_up(&m->outbound[i]->bytes_max, of_rule[i]);
}

static Stockade__V1__Sleep *
facts_message(struct arena *a, const struct sleep_facts *f)
{
    Stockade__V1__Sleep *m = wire_make(a, &stockade__v1__sleep__descriptor);
    if (m == NULL || (m->sleep_time = time_of(a, f->sleep_ms)) == NULL ||
        (f->wake_ms != 0 && (m->wake_time = time_of(a, f->wake_ms)) == NULL))
        return NULL;
    m->idle = f->idle;
    m->fell_back = f->fell_back;
    m->processes_ended = f->processes;
    m->contexts_ended = f->contexts;
    m->operations_ended = f->operations;
    m->connections_closed = f->connections;
    return m;
}

static Stockade__Sleeper__Sleeper *
make(struct arena *a, const struct sleepers *all, const struct sandbox *s,
     const struct kept_tree *tree, const struct sleep_facts *f)
{
    Stockade__Sleeper__Sleeper *m = wire_make(a, &stockade__sleeper__sleeper__descriptor);
    if (m == NULL || (m->sandbox = all->settings.describe(a, s)) == NULL ||
        (m->asked = wire_make(a, &stockade__v1__limits__descriptor)) == NULL ||
        (m->sandbox->last_sleep = facts_message(a, f)) == NULL || !add_layers(a, tree, m) ||
        !add_image(a, s->spec.image, m) || !add_volumes(a, s->spec.mounts, m))
        return NULL;
    const struct template *t = s->spec.template;
    m->version = VERSION;
    m->work = work_message(tree->work, tree->n, a);
    limits_to_message(&s->spec.asked, m->asked);
    use_up_limits(s, m->sandbox->network);
    m->sandbox->processes = 0;
    m->created_ms = s->created_ms;
    m->expires_ms = s->expires_ms;
    m->ttl_ms = s->spec.ttl_ms;
    m->sleep_after_ms = s->spec.sleep_after_ms;
    m->template_ = arena_copy(a, t->name, strlen(t->name));
    m->user_root = t->user_root;
    m->root_writable = t->root_writable;
    return m->template_ != NULL ? m : NULL;
}

static uint8_t *
pack(Stockade__Sleeper__Sleeper *m, size_t *n, struct err *e)
{
    *n = stockade__sleeper__sleeper__get_packed_size(m);
    if (*n > STORE_ABOUT_ANY_MAX) {
        m->work = NULL; // what it did is not needed for what it is
        *n = stockade__sleeper__sleeper__get_packed_size(m);
    }
    uint8_t *bytes = *n <= STORE_ABOUT_ANY_MAX ? malloc(*n + 1) : NULL;
    if (bytes != NULL)
        (void)stockade__sleeper__sleeper__pack(m, bytes);
    else if (*n > STORE_ABOUT_ANY_MAX)
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED,
                      "its description has %zu bytes, above the maximum of %d", *n,
                      STORE_ABOUT_ANY_MAX);
    else
        (void)err_sys(e, ENOMEM, "describe a sandbox");
    return bytes;
}

uint8_t *
describe_pack(const struct sleepers *all, const struct sandbox *s, const struct kept_tree *tree,
              const struct sleep_facts *f, size_t *n, struct err *e)
{
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    Stockade__Sleeper__Sleeper *m = a == NULL ? NULL : make(a, all, s, tree, f);
    if (m == NULL) {
        (void)err_sys(e, ENOMEM, "describe a sandbox");
        return NULL;
    }
    return pack(m, n, e);
}

void
describe_awake(struct sleeper *sl)
{
    struct arena *auto_arena a = NULL;
    Stockade__Sleeper__Sleeper *m = NULL;
    struct err e;
    size_t n = 0;
    uint8_t *bytes = NULL;
    if (describe_read(sl->record, &a, &m, &e) == 0) {
        m->awake = true; // NOLINT(clang-analyzer-core.NullDereference): it was read
        bytes = pack(m, &n, &e);
    }
    if (bytes == NULL || store_amend(sl->all->srv->store, sl->record, bytes, n, &e) < 0)
        log_err_about(LOG_WARNING, "sleep", &(struct log_about){.sandbox = sl->id.id}, &e);
}

// ---- reading

static bool
are_good_layers(const Stockade__Sleeper__Sleeper *m, uint32_t n)
{
    if (m->n_layers != n || m->top > n || (m->top == 0) != (n == 0))
        return false;
    for (size_t i = 0; i < m->n_layers; i++)
        if (m->layers[i]->below > i)
            return false;
    for (size_t i = 0; i < m->n_snapshots; i++) {
        const Stockade__Sleeper__Name *p = m->snapshots[i];
        if (p->layer > n || p->name[0] == '\0' || strlen(p->name) >= STORE_NAME)
            return false;
    }
    return true;
}

static bool
is_good_image(const Stockade__Sleeper__Image *m)
{
    struct template_env one;
    if (m == NULL)
        return true;
    if (strlen(m->name) >= STORE_NAME || strlen(m->workdir) >= sizeof((struct image *)0)->workdir ||
        m->n_env > (size_t)2 * TEMPLATE_ENV_MAX)
        return false;
    for (size_t i = 0; i < m->n_env; i++) {
        const char *is = strchr(m->env[i], '=');
        if (is == NULL || (size_t)(is - m->env[i]) >= sizeof one.name ||
            strlen(is) > sizeof one.value)
            return false;
    }
    return true;
}

static bool
are_good_volumes(const Stockade__Sleeper__Sleeper *m)
{
    for (size_t i = 0; i < m->n_volume; i++)
        if (m->volume[i].len != VOLUME_ID)
            return false;
    return m->n_volume == m->sandbox->n_volumes;
}

static int
check(const struct stored *r, const Stockade__Sleeper__Sleeper *m, struct err *e)
{
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it was unpacked
    if (m->version > VERSION)
        return err_set(e, ERR_FAILED_PRECONDITION, "it is of version %u: start a newer broker",
                       m->version);
    if (m->version == VERSION && m->sandbox != NULL && m->asked != NULL &&
        m->sandbox->last_sleep != NULL && validate_message(&m->sandbox->base, e) == 0 &&
        strcmp(m->sandbox->id, r->sandbox) == 0 && m->template_[0] != '\0' &&
        strlen(m->template_) < sizeof((struct template *)0)->name &&
        are_good_layers(m, r->layers_n) && is_good_image(m->image) && are_good_volumes(m))
        return 0;
    return err_set(e, ERR_DATA_LOSS, "it is damaged");
}

int
describe_read(const struct stored *r, struct arena **a, Stockade__Sleeper__Sleeper **m,
              struct err *e)
{
    ProtobufCMessage *base = NULL;
    struct arena *auto_arena own = arena_new(ARENA_MAX);
    int rc = own == NULL ? err_sys(e, ENOMEM, "read a record")
                         : wire_unpack(&stockade__sleeper__sleeper__descriptor, r->about,
                                       r->about_n, own, &base, e);
    if (rc == 0)
        rc = check(r, (const Stockade__Sleeper__Sleeper *)base, e);
    if (rc < 0)
        return err_wrap(e, "sandbox %s, which is asleep: record %s", r->sandbox, r->id);
    *m = (Stockade__Sleeper__Sleeper *)base;
    *a = take_ptr(own);
    return 0;
}

int
describe_tree(const Stockade__Sleeper__Sleeper *m, struct kept_tree *out, struct err *e)
{
    *out = (struct kept_tree){.n = (uint32_t)m->n_layers, .top = (uint8_t)m->top};
    for (uint32_t i = 0; i < out->n; i++) {
        out->below[i] = (uint8_t)m->layers[i]->below;
        out->work[i] = m->work == NULL ? NULL : work_of_layer(m->work, i);
    }
    out->names = calloc(m->n_snapshots + 1, sizeof *out->names);
    if (out->names == NULL)
        return err_sys(e, ENOMEM, "list the snapshots");
    for (size_t i = 0; i < m->n_snapshots; i++) {
        const Stockade__Sleeper__Name *from = m->snapshots[i];
        struct kept_name *to = &out->names[out->names_n++];
        *to = (struct kept_name){
            .created_ms = from->created_ms, .order = from->order, .layer = from->layer};
        (void)snprintf(to->name, sizeof to->name, "%s", from->name);
    }
    return 0;
}

// ---- for callers

Stockade__V1__Sleep *
sleeper_facts(struct arena *a, const struct sleeper *sl)
{
    Stockade__V1__Sleep *m = facts_message(a, &sl->facts);
    if (m == NULL || sl->record == NULL)
        return m;
    m->bytes = stored_bytes(sl->record);
    m->inodes = stored_entries(sl->record);
    return m;
}

Stockade__V1__Sandbox *
sleeper_message(struct arena *a, const struct sleeper *sl)
{
    ProtobufCMessage *base = NULL;
    struct err e;
    if (sl->record == NULL || wire_unpack(&stockade__sleeper__sleeper__descriptor,
                                          sl->record->about, sl->record->about_n, a, &base, &e) < 0)
        return NULL;
    Stockade__V1__Sandbox *m = ((Stockade__Sleeper__Sleeper *)base)->sandbox;
    if (m == NULL)
        return NULL;
    m->state = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_ASLEEP;
    m->last_sleep = sleeper_facts(a, sl);
    return m->last_sleep != NULL ? m : NULL;
}
