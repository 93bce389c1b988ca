// SPDX-License-Identifier: Apache-2.0
// See writer_thread.h.
#include "writer_thread.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "proto/auto.h"

void
writer_thread_init(struct writer_thread *w)
{
    (void)uv_mutex_init(&w->lock);
    (void)uv_cond_init(&w->wake);
}

static void
on_async(uv_async_t *async)
{
    struct writer_thread *w = async->data;
    w->done(w->owner);
}

static void
on_async_closed(uv_handle_t *async)
{
    free(async);
}

int
writer_thread_start(struct writer_thread *w, uv_loop_t *loop, void (*run)(void *owner),
                    void (*done)(void *owner), void *owner, struct err *e)
{
    assert(!w->started);
    w->done = done;
    w->owner = owner;
    w->async = calloc(1, sizeof *w->async);
    if (w->async == NULL)
        return err_sys(e, ENOMEM, "start a writer");
    int r = uv_async_init(loop, w->async, on_async);
    if (r < 0) {
        free(take_ptr(w->async));
        return err_sys(e, -r, "start a writer");
    }
    w->async->data = w;
    uv_unref((uv_handle_t *)w->async);
    r = uv_thread_create(&w->thread, run, owner);
    if (r < 0)
        return err_sys(e, -r, "start a writer");
    w->started = true;
    return 0;
}

void
writer_thread_done(struct writer_thread *w)
{
    (void)uv_async_send(w->async);
}

bool
writer_thread_end(struct writer_thread *w, bool *ends)
{
    if (!w->started)
        return false;
    uv_mutex_lock(&w->lock);
    *ends = true;
    uv_cond_signal(&w->wake);
    uv_mutex_unlock(&w->lock);
    (void)uv_thread_join(&w->thread);
    return true;
}

void
writer_thread_free(struct writer_thread *w)
{
    if (w->async != NULL)
        uv_close((uv_handle_t *)w->async, on_async_closed);
    uv_cond_destroy(&w->wake);
    uv_mutex_destroy(&w->lock);
}
