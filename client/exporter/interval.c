// SPDX-License-Identifier: Apache-2.0
// The metrics for OTLP: in an interval, those of the broker and the exporter's own go into the queue, as one record each. When the
// broker does not answer, only the latter do.
#include "proto/container_of.h"
#include "proto/now.h"
#include "exporter.h"

static void
on_metrics(struct broker_waiter *w, const struct stockade_metrics *metrics)
{
    struct exporter *x = container_of(w, struct exporter, waiter);
    const int64_t now = now_ns(CLOCK_REALTIME);
    x->fetching = false;
    if (x->outputs.n == 0 || uv_is_closing((uv_handle_t *)&x->interval))
        return;
    if (metrics != NULL)
        (void)outputs_metrics(&x->outputs, metrics, now); // counted there
    (void)outputs_metrics(&x->outputs, own_metrics(x), now);
}

static void
on_time(uv_timer_t *timer)
{
    struct exporter *x = timer->data;
    if (x->fetching)
        return;
    x->fetching = true;
    x->waiter.done = on_metrics;
    broker_fetch(x->broker, &x->waiter);
}

int
interval_begin(struct exporter *x, struct err *e)
{
    const uint64_t ms = x->config->otlp.interval_ms;
    if (x->outputs.metrics == NULL)
        return 0;
    int r = uv_timer_init(&x->loop, &x->interval);
    if (r == 0)
        r = uv_timer_start(&x->interval, on_time, ms, ms);
    x->interval.data = x;
    x->has_interval = r == 0;
    return r < 0 ? err_sys(e, r, "start a timer") : 0;
}

void
interval_close(struct exporter *x)
{
    if (x->has_interval && !uv_is_closing((uv_handle_t *)&x->interval))
        uv_close((uv_handle_t *)&x->interval, NULL);
}
