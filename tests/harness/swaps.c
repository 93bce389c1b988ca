// SPDX-License-Identifier: Apache-2.0
// See swaps.h.
#include "swaps.h"

static void
on_swapped(void *cookie, struct sandbox *s, const struct err *e)
{
    struct swapped *w = cookie;
    (void)s;
    assert_false(w->called);
    w->called = true;
    w->ok = e == NULL;
    if (e != NULL)
        w->e = *e;
}

void
prepare(struct swapped *w)
{
    *w = (struct swapped){.called = false};
    w->swap.waiter.done = on_swapped;
    w->swap.waiter.cookie = w;
}

int
ask(struct swapped *w, struct err *e)
{
    prepare(w);
    return sandbox_seal(box, &w->swap, e);
}

void
succeeds(struct swapped *w)
{
    until(w->called);
    if (!w->ok)
        fail_msg("%s", w->e.text);
    assert_true(w->swap.layer > 0);
}

uint32_t
swap(void)
{
    struct err e;
    struct swapped w;
    if (ask(&w, &e) < 0)
        fail_msg("%s", e.text);
    succeeds(&w);
    return w.swap.layer;
}

void
restore(uint32_t layer)
{
    struct err e;
    struct swapped w;
    prepare(&w);
    if (sandbox_restore(box, layer, &w.swap, &e) < 0)
        fail_msg("%s", e.text);
    succeeds(&w);
    assert_int_equal(w.swap.layer, layer);
}

void
fails(struct swapped *w, int code, const char *words)
{
    until(w->called);
    assert_false(w->ok);
    if (w->e.code != code || strstr(w->e.text, words) == NULL)
        fail_msg("code %d: %s", w->e.code, w->e.text);
    assert_int_equal(box->state, SANDBOX_RUNNING);
}

void
swap_fails(int code, const char *words)
{
    struct err e;
    struct swapped w;
    if (ask(&w, &e) < 0)
        fail_msg("%s", e.text);
    fails(&w, code, words);
}

bool
can_fork(void)
{
    return core_broker()->features.copies_layers == 0;
}

struct sandbox *
fork_of(struct sandbox *parent, uint32_t layer)
{
    struct err e;
    struct swapped w;
    (void)make_box(NULL);
    struct sandbox *child = box;
    prepare(&w);
    if (sandbox_inherit(child, parent, layer, &w.swap, &e) < 0)
        fail_msg("%s", e.text);
    succeeds(&w);
    return child;
}

void
forget_box(struct sandbox *s)
{
    struct err e;
    uint32_t left = sandboxes_count(srv.sandboxes) - 1;
    (void)err_set(&e, ERR_CANCELLED, "gone");
    sandbox_destroy(s, &e, NULL);
    until(sandboxes_count(srv.sandboxes) == left);
}
