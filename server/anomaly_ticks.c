// Tripwires about figures, every 100 ms: storms, masses, uploads, mining, and rates that left their course.
#include <stdio.h>

#include "anomaly_box.h"
#include "anomaly_box_private.h"

// What counts as talking, printing or working on files, in a tick.
static const uint64_t idle_bytes = 512;

struct mass {
    enum anomaly_rule rule;
    const char *text;
};

static int32_t
cut(uint64_t n)
{
    return n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

static void
count(struct box *b, const struct mass *m, uint64_t now_ns, int32_t n)
{
    const struct anomaly_policy *p = box_rule(b, m->rule);
    int64_t sum = box_window_add(&b->window[m->rule], now_ns, p->window_ms, n);
    if (!box_crossed(b, m->rule, now_ns, (double)sum))
        return;
    char text[ANOMALY_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%lld %s within %.1f s", (long long)sum, m->text,
                   (double)p->window_ms / 1000);
    box_raise(b, m->rule, now_ns, (double)sum, text);
}

// A figure that went back belongs to something else: nothing happened.
static uint64_t
since(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

// CPU time near the quota while nothing else happens. A tick that does not fit takes ten that did.
static void
look_for_mining(struct box *b, const struct anomaly_sums *s, uint64_t now_ns)
{
    const struct anomaly_policy *p = box_rule(b, RULE_MINING);
    const struct anomaly_sums *o = &b->before;
    double elapsed = (double)(now_ns - b->tick_ns);
    double cpus = b->cpu_millis > 0 && b->cpu_millis < 1000 ? b->cpu_millis / 1000.0 : 1;
    double percent = 100 * (double)since(s->cpu_ns, o->cpu_ns) / (elapsed * cpus);
    bool idle = since(s->out_bytes, o->out_bytes) + since(s->in_bytes, o->in_bytes) <= idle_bytes &&
                since(s->output_bytes, o->output_bytes) == 0 && s->opens_write == o->opens_write &&
                s->execs == o->execs && s->unlinks == o->unlinks;
    if (idle && percent >= (double)p->threshold)
        b->busy_ms += elapsed / 1e6;
    else
        b->busy_ms = b->busy_ms > elapsed / 1e5 ? b->busy_ms - elapsed / 1e5 : 0;
    if (b->busy_ms < (double)p->window_ms || !box_crossed(b, RULE_MINING, now_ns, percent))
        return;
    char text[ANOMALY_TEXT_MAX];
    (void)snprintf(text, sizeof text,
                   "%.0f percent of its CPU for %.0f s without a word to anybody", percent,
                   b->busy_ms / 1000);
    box_raise(b, RULE_MINING, now_ns, percent, text);
    b->busy_ms = 0;
}

static void
look_at_rates(struct box *b, const struct anomaly_sums *s, uint64_t now_ns)
{
    const struct anomaly_policy *p = box_rule(b, RULE_RATE_SHIFT);
    struct rates_shift shift[RATES_N];
    uint32_t n = rates_tick(&b->rates, s, b->ports, (double)p->threshold, shift);
    for (uint32_t i = 0; i < n; i++) {
        if (!box_crossed(b, RULE_RATE_SHIFT, now_ns, shift[i].score))
            continue;
        char text[ANOMALY_TEXT_MAX];
        (void)snprintf(text, sizeof text, "%s %s: %.0f in 100 ms, where %.0f were usual",
                       shift[i].name, shift[i].direction > 0 ? "rose" : "fell", shift[i].value,
                       shift[i].mean);
        box_raise(b, RULE_RATE_SHIFT, now_ns, shift[i].score, text);
    }
}

// A budget of events can be used up by a job that wants to, a counter cannot: what the counter had at the last tick, and no
// event has told by now, was lost.
void
box_settled(struct box *b, uint64_t now_ns)
{
    const struct {
        enum anomaly_rule rule;
        uint64_t happened;
        const char *text;
    } rows[] = {
        {RULE_UNNAMED_EXEC, b->before.memfd_execs, "files without a name were executed"},
        {RULE_SENSITIVE_PATH, b->before.opens_sensitive, "sensitive files were opened"},
        {RULE_IO_URING, b->before.io_urings, "uses of io_uring were made"},
        {RULE_OOM, b->before.ooms, "processes were killed for want of memory"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[ANOMALY_TEXT_MAX];
        uint64_t told = b->seen[rows[i].rule];
        if (rows[i].happened <= told)
            continue;
        (void)snprintf(text, sizeof text, "%llu %s whose events were lost",
                       (unsigned long long)(rows[i].happened - told), rows[i].text);
        b->seen[rows[i].rule] = rows[i].happened;
        box_count(b, rows[i].rule, now_ns, 15, text);
    }
}

void
box_tick(struct box *b, const struct anomaly_sums *sums, uint64_t now_ns)
{
    static const struct mass forks = {RULE_FORK_STORM, "tasks more than before"};
    static const struct mass renames = {RULE_MASS_RENAME, "files were renamed"};
    static const struct mass unlinks = {RULE_MASS_UNLINK, "files were removed"};
    static const struct mass upload = {RULE_LARGE_UPLOAD, "KiB were sent"};
    static const struct mass signals = {RULE_SIGNAL_STORM, "signals went to other processes"};
    // What is known begins with the sandbox: before the first tick everything was 0.
    if (b->tick_ns == 0 && now_ns > ANOMALY_TICK_MS * 1000000ULL)
        b->tick_ns = now_ns - ANOMALY_TICK_MS * 1000000ULL;
    uint64_t elapsed_ns = now_ns > b->tick_ns ? now_ns - b->tick_ns : 0;
    if (elapsed_ns > 0) {
        const struct anomaly_sums *o = &b->before;
        count(b, &forks, now_ns,
              cut(since(sums->forks, o->forks)) - cut(since(sums->exits, o->exits)));
        count(b, &renames, now_ns, cut(since(sums->renames, o->renames)));
        count(b, &unlinks, now_ns, cut(since(sums->unlinks, o->unlinks)));
        // Whole KiB: what is left over stays for the next tick.
        count(b, &upload, now_ns, cut(since(sums->out_bytes >> 10, o->out_bytes >> 10)));
        count(b, &signals, now_ns, cut(since(sums->signals, o->signals)));
        look_for_mining(b, sums, now_ns);
        box_settled(b, now_ns);
    }
    // A job's end comes between two ticks; rates are per tick.
    if (elapsed_ns >= ANOMALY_TICK_MS * 1000000ULL / 2)
        look_at_rates(b, sums, now_ns);
    b->before = *sums;
    b->tick_ns = now_ns;
}
