// SPDX-License-Identifier: Apache-2.0
// See profiles.h.
#include "profiles.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/base/metrics.h"

// A job can make files with its own uid only. Files of the sandbox's root, or of an unmapped owner, belong to the
// host.
static bool
is_of_the_host(const struct watch_exe_key *key)
{
    return key->owner == 0 || key->owner == ~0U;
}

bool
profiles_possible(const struct profiles *p)
{
    return p->bpf != NULL && p->bpf->profiles != NULL && p->bpf->profile_states != NULL;
}

static struct profile_exe *
find(struct profiles *p, const struct watch_exe_key *key)
{
    for (uint32_t i = 0; i < p->exes_n; i++)
        if (memcmp(&p->exe[i].key, key, sizeof *key) == 0)
            return &p->exe[i];
    return NULL;
}

static uint32_t
mode_of(const struct profile_set *s)
{
    return s->state == PROFILES_LEARNING ? WATCH_PROFILE_LEARN
           : s->state == PROFILES_FROZEN ? WATCH_PROFILE_JUDGE
                                         : WATCH_PROFILE_OFF;
}

static uint32_t
threshold_of(const struct profile_set *s, const struct profile_exe *x)
{
    uint32_t sum = s->threshold + x->surprise;
    uint32_t most = s->threshold > PROFILES_THRESHOLD_MAX ? s->threshold : PROFILES_THRESHOLD_MAX;
    return sum < most ? sum : most;
}

// The kernel's entry of one executable. The mode is written last, so bits and threshold are valid when it begins to
// count.
static void
write_state(struct profiles *p, const struct profile_set *s, const struct profile_exe *x)
{
    struct watch_profile_state *k = &p->bpf->profile_states[x->slot];
    k->threshold = threshold_of(s, x) - 1; // the kernel reports above this value
    __atomic_store_n(&k->mode, mode_of(s), __ATOMIC_RELEASE);
}

static void
write_exe(struct profiles *p, const struct profile_exe *x)
{
    const struct watch_exe value = {.profile = x->slot};
    int fd = p->bpf->fd[BPF_FD_EXES];
    if (fd >= 0 && bpf_map_update_elem(fd, &x->key, &value, BPF_ANY) < 0)
        metrics_add(METRIC_PROFILE_ERRORS, 1);
}

static void
leave_out(struct profiles *p)
{
    p->left_out++;
    metrics_add(METRIC_PROFILE_LEFT_OUT, 1);
}

static uint32_t
take_slot(struct profiles *p)
{
    for (uint32_t i = 0; i < WATCH_PROFILES - 1; i++) {
        uint32_t slot = 1 + (p->next_slot + i) % (WATCH_PROFILES - 1);
        if (p->taken[slot])
            continue;
        p->taken[slot] = true;
        p->next_slot = slot;
        struct watch_profile_state *k = &p->bpf->profile_states[slot];
        __atomic_store_n(&k->mode, WATCH_PROFILE_OFF, __ATOMIC_RELEASE);
        memset(&p->bpf->profiles[slot], 0, sizeof p->bpf->profiles[slot]);
        k->trigrams = k->unseen = k->windows = k->alerts = 0;
        k->most = 0;
        return slot;
    }
    return 0;
}

static void
give_slot(struct profiles *p, uint32_t slot)
{
    if (slot == 0)
        return;
    __atomic_store_n(&p->bpf->profile_states[slot].mode, WATCH_PROFILE_OFF, __ATOMIC_RELEASE);
    p->taken[slot] = false;
}

static struct profile_exe *
add(struct profiles *p, const struct watch_exe_key *key, const char *path, size_t path_n)
{
    if (p->exes_n == PROFILES_EXES) {
        leave_out(p);
        return NULL;
    }
    struct profile_exe *x = &p->exe[p->exes_n++];
    *x = (struct profile_exe){.key = *key, .slot = take_slot(p)};
    if (x->slot == 0)
        leave_out(p);
    path_n = path_n < sizeof x->path ? path_n : sizeof x->path - 1;
    memcpy(x->path, path, path_n); // a NUL in the path ends it
    memset(x->path + strlen(x->path), 0, sizeof x->path - strlen(x->path));
    return x;
}

enum box_exe
profiles_exec(struct profiles *p, uint32_t template, const struct watch_exec *x)
{
    struct profile_set *s = &p->set[template];
    if (s->state == PROFILES_OFF || x->memfd != 0 || x->exe.template != template)
        return BOX_EXE_KNOWN;
    if (!is_of_the_host(&x->exe)) {
        bool was = s->own_files;
        s->own_files = s->own_files || s->state == PROFILES_LEARNING;
        s->changed = s->changed || s->own_files != was;
        return s->own_files ? BOX_EXE_KNOWN : BOX_EXE_NEW;
    }
    struct profile_exe *known = find(p, &x->exe);
    if (known == NULL && s->state == PROFILES_FROZEN)
        return BOX_EXE_NEW;
    if (known == NULL) {
        known = add(p, &x->exe, x->path, x->path_n);
        if (known == NULL)
            return BOX_EXE_KNOWN;
        if (known->slot != 0)
            write_state(p, s, known);
        write_exe(p, known);
        s->changed = true;
    }
    known->execs++;
    return BOX_EXE_KNOWN;
}

static void
set_state(struct profiles *p, uint32_t template, enum profiles_state state)
{
    struct profile_set *s = &p->set[template];
    s->state = state;
    s->changed = true;
    for (uint32_t i = 0; i < p->exes_n; i++)
        if (p->exe[i].key.template == template && p->exe[i].slot != 0)
            write_state(p, s, &p->exe[i]);
}

static uint32_t
exes_of(const struct profiles *p, uint32_t template)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->exes_n; i++)
        n += p->exe[i].key.template == template ? 1 : 0;
    return n;
}

// A run has ended, in which this executable may have run. If jobs run simultaneously, the first one to end gets all
// counts.
static void
settle_run(const struct profiles *p, struct profile_exe *x)
{
    struct watch_profile_state *k = &p->bpf->profile_states[x->slot];
    uint32_t most = __atomic_exchange_n(&k->most, 0, __ATOMIC_RELAXED);
    if (most == 0 && k->trigrams == x->trigrams)
        return;
    most = most < WATCH_WINDOW ? most : WATCH_WINDOW;
    if (x->runs > 0 && most > x->surprise)
        x->surprise = most;
    x->trigrams = k->trigrams;
    x->runs += x->runs < PROFILES_RUNS_MAX ? 1 : 0;
}

bool
profiles_run(struct profiles *p, uint32_t template)
{
    struct profile_set *s = &p->set[template];
    struct err e;
    if (s->state != PROFILES_LEARNING)
        return false;
    s->runs += s->runs < PROFILES_RUNS_MAX ? 1 : 0;
    s->changed = true;
    for (uint32_t i = 0; i < p->exes_n; i++)
        if (p->exe[i].key.template == template && p->exe[i].slot != 0)
            settle_run(p, &p->exe[i]);
    return s->wanted != 0 && s->runs >= s->wanted && profiles_freeze(p, template, &e) == 0;
}

int
profiles_freeze(struct profiles *p, uint32_t template, struct err *e)
{
    struct profile_set *s = &p->set[template];
    if (s->state != PROFILES_LEARNING)
        return err_set(e, ERR_FAILED_PRECONDITION, "template \"%s\" does not learn", s->template);
    if (exes_of(p, template) == 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "template \"%s\" has learnt nothing yet",
                       s->template);
    s->version++;
    s->frozen_s = (uint64_t)time(NULL);
    set_state(p, template, PROFILES_FROZEN);
    return 0;
}

static void
forget(struct profiles *p, uint32_t template)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->exes_n; i++) {
        struct profile_exe *x = &p->exe[i];
        if (x->key.template != template) {
            if (kept != i)
                p->exe[kept] = *x;
            kept++;
            continue;
        }
        int fd = p->bpf->fd[BPF_FD_EXES];
        if (fd >= 0 && bpf_map_delete_elem(fd, &x->key) < 0 && errno != ENOENT)
            metrics_add(METRIC_PROFILE_ERRORS, 1);
        give_slot(p, x->slot);
    }
    p->exes_n = kept;
}

void
profiles_reset(struct profiles *p, uint32_t template)
{
    struct profile_set *s = &p->set[template];
    if (!profiles_possible(p))
        return;
    forget(p, template);
    s->learnt_from[0] = '\0';
    s->runs = 0;
    s->frozen_s = 0;
    s->own_files = false;
    set_state(p, template, s->wanted != 0 ? PROFILES_LEARNING : PROFILES_OFF);
}

int
profiles_export(const struct profiles *p, uint32_t template, uint8_t **bytes, size_t *n,
                struct err *e)
{
    static const struct watch_profile nothing;
    const struct profile_set *s = &p->set[template];
    struct image_head head = {.runs = s->runs,
                              .version = s->version,
                              .frozen_s = s->frozen_s,
                              .exes = exes_of(p, template)};
    if (head.exes == 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "template \"%s\" has no profile", s->template);
    memcpy(head.template, s->learnt_from[0] != '\0' ? s->learnt_from : s->template,
           sizeof head.template);
    head.frozen = s->state == PROFILES_FROZEN;
    head.own_files = s->own_files;
    struct image_writer *w = image_begin(&head, e);
    int r = w == NULL ? err_errno(e) : 0;
    for (uint32_t i = 0; i < p->exes_n && r == 0; i++) {
        const struct profile_exe *x = &p->exe[i];
        if (x->key.template != template)
            continue;
        struct image_exe one = {
            .key = x->key, .execs = x->execs, .runs = x->runs, .surprise = x->surprise};
        memcpy(one.path, x->path, sizeof one.path);
        r = image_add(w, &one, x->slot != 0 ? &p->bpf->profiles[x->slot] : &nothing, e);
    }
    if (r == 0)
        r = image_end(w, bytes, n, e);
    image_free(w);
    return r;
}

struct import {
    struct profiles *p;
    uint32_t template;
};

static void
import_one(void *cookie, const struct image_exe *exe, const struct watch_profile *bits)
{
    struct import *in = cookie;
    struct watch_exe_key key = exe->key;
    key.template = in->template;
    struct profile_exe *x = add(in->p, &key, exe->path, strlen(exe->path));
    if (x == NULL)
        return;
    x->execs = exe->execs;
    x->runs = exe->runs;
    x->surprise = exe->surprise;
    if (x->slot != 0)
        in->p->bpf->profiles[x->slot] = *bits;
    write_exe(in->p, x);
}

int
profiles_import(struct profiles *p, uint32_t template, const uint8_t *bytes, size_t n, bool again,
                struct err *e)
{
    struct profile_set *s = &p->set[template];
    struct image_head head;
    if (!profiles_possible(p))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "profiles are not available: the BPF programs are not loaded");
    int r = image_read(bytes, n, &head, NULL, NULL, e);
    if (r < 0)
        return r;
    uint32_t others = p->exes_n - exes_of(p, template);
    if (head.exes > PROFILES_EXES - others)
        return err_set(e, ERR_RESOURCE_EXHAUSTED,
                       "%u executables, but there is room for only %u beside other templates",
                       head.exes, PROFILES_EXES - others);
    forget(p, template);
    struct import in = {p, template};
    r = image_read(bytes, n, &head, import_one, &in, e);
    if (r < 0) { // the same bytes were valid above, so this is lack of memory
        profiles_reset(p, template);
        return r;
    }
    bool foreign = strcmp(head.template, s->template) != 0;
    (void)snprintf(s->learnt_from, sizeof s->learnt_from, "%s", foreign ? head.template : "");
    s->runs = head.runs;
    s->version = again || head.version > s->version ? head.version : s->version + 1;
    s->own_files = head.own_files;
    bool frozen = !again || head.frozen;
    s->frozen_s = frozen && head.frozen_s == 0 ? (uint64_t)time(NULL) : head.frozen_s;
    set_state(p, template, frozen ? PROFILES_FROZEN : PROFILES_LEARNING);
    s->changed = !again;
    return 0;
}

struct watch_profile_state
profiles_figures(const struct profiles *p, const struct profile_exe *x)
{
    return x->slot != 0 ? p->bpf->profile_states[x->slot] : (struct watch_profile_state){0};
}

uint32_t
profiles_bits(const struct profiles *p, const struct profile_exe *x)
{
    return x->slot != 0 ? image_count(&p->bpf->profiles[x->slot]) : 0;
}
