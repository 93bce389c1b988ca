// SPDX-License-Identifier: Apache-2.0
// Tripwires on counters, checked every 100 ms: fork and signal storms, mass changes of files, uploads, mining,
// rates that changed, and lists of names.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "box.h"
#include "box_private.h"
#include "server/sandbox/observers.h"
#include "server/telemetry/telemetry.h"

struct mass {
    enum anomaly_rule rule;
    const char *text;
};

static int32_t
cut(uint64_t n)
{
    return n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

static const char *
say_mass(const struct box *b, const struct mass *m, int64_t sum, char text[FINDING_TEXT_MAX])
{
    (void)snprintf(text, FINDING_TEXT_MAX, "%lld %s within %.1f s", (long long)sum, m->text,
                   (double)box_rule(b, m->rule)->window_ms / 1000);
    return text;
}

// Counts for one job (b->job), or for the whole sandbox. Without new counts the response is not repeated.
static void
count(struct box *b, const struct mass *m, uint64_t now_ns, int32_t n)
{
    char text[FINDING_TEXT_MAX];
    struct box_scope *of = b->job != NULL ? &b->job->scope : &b->whole;
    int64_t sum = box_window_add(&of->window[m->rule], now_ns, box_rule(b, m->rule)->window_ms, n);
    double job = b->job != NULL ? (double)sum : 0;
    double whole = b->job == NULL ? (double)sum : 0;
    if (n > 0 && box_crossed(b, m->rule, now_ns, job, whole))
        box_raise(b, m->rule, now_ns, (double)sum, say_mass(b, m, sum, text));
}

// Counts additional tasks. A task that has executed a program counts half: it is likely work, such as `xargs -P`.
// Fork bombs rarely execute programs; one that does needs twice as many tasks.
static void
count_forks(struct box *b, const struct mass *m, uint64_t now_ns, int32_t more, int32_t execs)
{
    char text[FINDING_TEXT_MAX];
    struct box_scope *of = b->job != NULL ? &b->job->scope : &b->whole;
    uint64_t window_ms = box_rule(b, m->rule)->window_ms;
    int64_t sum = box_window_add(&of->window[m->rule], now_ns, window_ms, more);
    int64_t work = box_window_add(&of->execs, now_ns, window_ms, execs);
    int64_t score = sum - (work < sum ? work : sum) / 2;
    double job = b->job != NULL ? (double)score : 0;
    double whole = b->job == NULL ? (double)score : 0;
    if (more > 0 && box_crossed(b, m->rule, now_ns, job, whole))
        box_raise(b, m->rule, now_ns, (double)score, say_mass(b, m, sum, text));
}

// Counters of the whole sandbox raise one finding for all its jobs, if it is new for any of them.
static void
raise_for_all(struct box *b, enum anomaly_rule rule, bool is_new, uint64_t now_ns, double score,
              const char *text)
{
    if (box_rule(b, rule)->enabled != 1 ||
        (!is_new && box_rule(b, rule)->response < RESPONSE_THROTTLE))
        return;
    if (is_new)
        box_keep_quiet(b, rule, now_ns);
    box_say(b, is_new, rule, now_ns, score, text);
}

// True if the finding has not been reported for the sandbox, or for one of its jobs.
static bool
is_new_to_any(struct box *b, enum anomaly_rule rule, uint64_t now_ns)
{
    bool is_new = now_ns >= b->whole.quiet_ns[rule];
    list_each(it, &b->jobs) is_new =
        is_new || now_ns >= list_entry(it, struct box_job, node)->scope.quiet_ns[rule];
    return is_new;
}

// A counter of the whole sandbox: each job counts it from its own start.
static void
count_shared(struct box *b, const struct mass *m, uint64_t now_ns, int32_t n)
{
    char text[FINDING_TEXT_MAX];
    const struct anomaly_policy *p = box_rule(b, m->rule);
    int64_t sum = box_window_add(&b->whole.window[m->rule], now_ns, p->window_ms, n);
    bool over = sum >= (int64_t)p->threshold;
    bool is_new = over && now_ns >= b->whole.quiet_ns[m->rule];
    list_each(it, &b->jobs)
    {
        struct box_scope *of = &list_entry(it, struct box_job, node)->scope;
        int64_t own = box_window_add(&of->window[m->rule], now_ns, p->window_ms, n);
        is_new = is_new || (own >= (int64_t)p->threshold && now_ns >= of->quiet_ns[m->rule]);
    }
    if (n > 0 && over)
        raise_for_all(b, m->rule, is_new, now_ns, (double)sum, say_mass(b, m, sum, text));
}

// A counter that decreased is that of something else: nothing is counted.
static uint64_t
since(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

// CPU time near the quota without other activity. One tick that does not match cancels ten that did.
static void
look_for_mining(struct box *b, const struct activity *s, uint64_t now_ns)
{
    const struct anomaly_policy *p = box_rule(b, RULE_MINING);
    const struct activity *o = &b->whole.before;
    double elapsed = (double)(now_ns - b->tick_ns);
    double cpus = b->cpu_millis > 0 && b->cpu_millis < 1000 ? b->cpu_millis / 1000.0 : 1;
    double percent = 100 * (double)since(s->cpu_ns, o->cpu_ns) / (elapsed * cpus);
    bool idle = since(s->out_bytes, o->out_bytes) + since(s->in_bytes, o->in_bytes) <=
                    b->policy->parameter[PARAMETER_IDLE_BYTES] &&
                since(s->output_bytes, o->output_bytes) == 0 && s->opens_write == o->opens_write &&
                s->execs == o->execs && s->unlinks == o->unlinks;
    if (idle && percent >= (double)p->threshold)
        b->busy_ms += elapsed / 1e6;
    else
        b->busy_ms = b->busy_ms > elapsed / 1e5 ? b->busy_ms - elapsed / 1e5 : 0;
    if (b->busy_ms < (double)p->window_ms)
        return;
    char text[FINDING_TEXT_MAX];
    (void)snprintf(
        text, sizeof text,
        "%.0f percent of its CPUs for %.0f s without network traffic, output or file access",
        percent, b->busy_ms / 1000);
    raise_for_all(b, RULE_MINING, is_new_to_any(b, RULE_MINING, now_ns), now_ns, percent, text);
    b->busy_ms = 0;
}

static void
look_at_rates(struct box *b, const struct activity *s, uint64_t now_ns)
{
    const struct anomaly_policy *p = box_rule(b, RULE_RATE_SHIFT);
    struct rates_shift shift[RATES_N];
    uint32_t n = rates_tick(&b->rates, s, b->ports, (double)p->threshold, shift);
    for (uint32_t i = 0; i < n; i++) {
        char text[FINDING_TEXT_MAX];
        (void)snprintf(text, sizeof text, "%s %s: %.0f in 100 ms, usually %.0f", shift[i].name,
                       shift[i].direction > 0 ? "rose" : "fell", shift[i].value, shift[i].mean);
        raise_for_all(b, RULE_RATE_SHIFT, is_new_to_any(b, RULE_RATE_SHIFT, now_ns), now_ns,
                      shift[i].score, text);
    }
}

static uint64_t
figure(const struct activity *s, size_t offset)
{
    uint64_t n;
    memcpy(&n, (const char *)s + offset, sizeof n);
    return n;
}

// A job can use up the budget of events, but not a counter. The difference between the counter at the last tick and
// the number of events so far is the number of lost events. For one job (b->job), or for the part of the whole that
// the jobs' own counters do not explain.
static void
settle(struct box *b, struct box_scope *of, uint64_t now_ns)
{
    static const struct {
        enum anomaly_rule rule;
        size_t figure;
        const char *text;
    } rows[] = {
        {RULE_UNNAMED_EXEC, offsetof(struct activity, memfd_execs),
         "files without a name were executed"},
        {RULE_NEW_EXECUTABLE, offsetof(struct activity, new_execs),
         "programs that are not in the template's profile were executed"},
        {RULE_REMOTE_SHELL, offsetof(struct activity, socket_execs),
         "programs ran on a socket, or on a terminal connected to outside,"},
        {RULE_PRELOADED_LIBRARY, offsetof(struct activity, preloads),
         "libraries of the sandbox's own were preloaded"},
        {RULE_OPEN_LISTENER, offsetof(struct activity, listens), "sockets listen on all addresses"},
        {RULE_DANGEROUS_SYSCALL, offsetof(struct activity, dangerous),
         "system calls that honest jobs do not make were made"},
        {RULE_SENSITIVE_PATH, offsetof(struct activity, opens_sensitive),
         "uses of sensitive paths were tried"},
        {RULE_SENSITIVE_LOOK, offsetof(struct activity, looks_sensitive),
         "looks at sensitive paths were tried"},
        {RULE_IO_URING, offsetof(struct activity, io_urings), "uses of io_uring were made"},
        {RULE_OOM, offsetof(struct activity, ooms), "processes were killed for lack of memory"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[FINDING_TEXT_MAX];
        enum anomaly_rule rule = rows[i].rule;
        // An event without a known job counts for the whole only, so no job can miss more events than the whole.
        uint64_t in_all =
            since(figure(&b->whole.before, rows[i].figure), *box_seen_at(&b->whole, rule));
        uint64_t n = since(figure(&of->before, rows[i].figure), *box_seen_at(of, rule));
        n = n < in_all ? n : in_all;
        if (n == 0)
            continue;
        (void)snprintf(text, sizeof text, "%llu %s whose events were lost", (unsigned long long)n,
                       rows[i].text);
        *box_seen_at(of, rule) += n;
        if (of != &b->whole)
            *box_seen_at(&b->whole, rule) += n;
        box_count(b, rule, now_ns, 15, n, text);
    }
}

// First what the jobs' own counters explain, then the rest, for the whole sandbox.
static void
settle_all(struct box *b, uint64_t now_ns)
{
    list_each(it, &b->jobs)
    {
        b->job = list_entry(it, struct box_job, node);
        settle(b, &b->job->scope, now_ns);
    }
    b->job = NULL;
    settle(b, &b->whole, now_ns);
}

void
box_settled(struct box *b, uint64_t now_ns, bool all)
{
    if (b->job != NULL)
        settle(b, &b->job->scope, now_ns);
    if (all)
        settle(b, &b->whole, now_ns);
}

void
box_witnesses(struct box *b, uint64_t now_ns, const char *why)
{
    char text[FINDING_TEXT_MAX];
    (void)snprintf(text, sizeof text, "the kernel's counters contradict the relay's: %s", why);
    box_count(b, RULE_WITNESS_MISMATCH, now_ns, box_hash(why, strlen(why), 16), 1, text);
}

// That it ends is reported, also if it was near the limit a moment ago.
void
box_lists(struct box *b, uint64_t now_ns, const struct sandbox_lists *what, uint32_t jobs)
{
    char text[FINDING_TEXT_MAX];
    const uint64_t mib = what->bytes >> 20, most = what->bytes_max >> 20;
    const uint64_t whole_percent = what->bytes * 100 / what->bytes_max;
    const double percent = (double)whole_percent;
    if (what->ends ? box_rule(b, RULE_KERNEL_MEMORY)->enabled != 1
                   : !box_crossed(b, RULE_KERNEL_MEMORY, now_ns, percent, percent))
        return;
    (void)snprintf(
        text, sizeof text,
        "the kernel holds %" PRIu64 " MiB more than before for lists of names (limit: %" PRIu64
        " MiB), and jobs of this sandbox (%u) have the most folders open, %" PRIu64 ": %s",
        mib, most, jobs, what->folders,
        what->ends ? "it was destroyed" : "nothing was done; at the limit it is destroyed");
    if (what->ends)
        box_say(b, true, RULE_KERNEL_MEMORY, now_ns, percent, text);
    else
        box_raise(b, RULE_KERNEL_MEMORY, now_ns, percent, text);
}

static const struct mass forks = {RULE_FORK_STORM, "more tasks than before"};
static const struct mass renames = {RULE_MASS_RENAME, "files were renamed"};
static const struct mass unlinks = {RULE_MASS_UNLINK, "files were removed"};
static const struct mass fork_rate = {RULE_FORK_RATE, "processes were created"};
static const struct mass rewrites = {RULE_MASS_REWRITE,
                                     "existing files were rewritten or truncated"};
static const struct mass relinks = {RULE_MASS_RELINK, "files were linked elsewhere and removed"};
static const struct mass wipes = {RULE_MASS_WIPE, "files were rewritten and removed"};
static const struct mass encryptions = {RULE_MASS_ENCRYPT, "files were rewritten and renamed"};
static const struct mass upload = {RULE_LARGE_UPLOAD, "KiB were sent"};
static const struct mass signals = {RULE_SIGNAL_STORM, "signals went to other processes"};

// Of n renames or removals, the number that affects existing files. To replace a file as a whole, programs create a
// new one just before and rename it, such as pip with each compiled module, and `sed -i`; git removes it.
static uint64_t
of_what_was_there(uint64_t *made, uint64_t n)
{
    uint64_t own = *made < n ? *made : n;
    *made -= own;
    return n - own;
}

// A program that encrypts in place rewrites each file and renames it, at once or in two passes. Work that sorts or renames files does not rewrite
// them, and work that rewrites keeps the names: the fewer of both in the window.
static void
count_encryption(struct box *b, uint64_t now_ns, int32_t renamed, int32_t rewritten)
{
    char text[FINDING_TEXT_MAX];
    struct box_scope *of = b->job != NULL ? &b->job->scope : &b->whole;
    const uint64_t window_ms = box_rule(b, RULE_MASS_ENCRYPT)->window_ms;
    const int64_t r = box_window_add(&of->window[RULE_MASS_ENCRYPT], now_ns, window_ms, renamed);
    const int64_t w = box_window_add(&of->rewritten, now_ns, window_ms, rewritten);
    const int64_t both = r < w ? r : w;
    const double job = b->job != NULL ? (double)both : 0;
    const double whole = b->job == NULL ? (double)both : 0;
    if ((renamed > 0 || rewritten > 0) && box_crossed(b, RULE_MASS_ENCRYPT, now_ns, job, whole))
        box_raise(b, RULE_MASS_ENCRYPT, now_ns, (double)both,
                  say_mass(b, &encryptions, both, text));
}

// The counters of one job (b->job), or of the sandbox.
static void
count_masses(struct box *b, const struct activity *s, const struct activity *o, uint64_t now_ns)
{
    struct box_scope *of = b->job != NULL ? &b->job->scope : &b->whole;
    uint64_t made = of->made + since(s->opens_exclusive, o->opens_exclusive);
    uint64_t renamed = of_what_was_there(&made, since(s->renames, o->renames));
    uint64_t removed = of_what_was_there(&made, since(s->unlinks, o->unlinks));
    of->made = (uint32_t)(made < BOX_MADE_MAX ? made : BOX_MADE_MAX);
    count_forks(b, &forks, now_ns, cut(since(s->forks, o->forks)) - cut(since(s->exits, o->exits)),
                cut(since(s->execs, o->execs)));
    count(b, &renames, now_ns, cut(renamed));
    count(b, &unlinks, now_ns, cut(removed));
    uint64_t links =
        // git links the file that it has created, and removes the other name
        since(s->links, o->links);
    count(b, &fork_rate, now_ns, cut(since(s->forks, o->forks)));
    const uint64_t rewritten = since(s->rewrites, o->rewrites);
    count(b, &rewrites, now_ns, cut(rewritten));
    count_encryption(b, now_ns, cut(renamed), cut(rewritten));
    // Who wipes removes each file when it is overwritten: both in the same 100 ms. Work that replaces many files does one first.
    count(b, &wipes, now_ns, cut(rewritten < removed ? rewritten : removed));
    count(b, &relinks, now_ns, cut(links < removed ? links : removed));
    count(b, &signals, now_ns, cut(since(s->signals, o->signals)));
}

void
box_tick(struct box *b, const struct activity *sums, uint64_t now_ns)
{
    // The counters start with the sandbox: before the first tick everything was 0.
    if (b->tick_ns == 0 && now_ns > TELEMETRY_LOOK_MS * 1000000ULL)
        b->tick_ns = now_ns - TELEMETRY_LOOK_MS * 1000000ULL;
    uint64_t elapsed_ns = now_ns > b->tick_ns ? now_ns - b->tick_ns : 0;
    if (elapsed_ns > 0) {
        const struct activity *o = &b->whole.before;
        list_each(it, &b->jobs)
        {
            b->job = list_entry(it, struct box_job, node);
            count_masses(b, &b->job->now, &b->job->scope.before, now_ns);
        }
        b->job = NULL;
        count_masses(b, sums, o, now_ns);
        // Whole KiB: the remainder stays for the next tick.
        count_shared(b, &upload, now_ns, cut(since(sums->out_bytes >> 10, o->out_bytes >> 10)));
        look_for_mining(b, sums, now_ns);
        settle_all(b, now_ns);
    }
    b->job = NULL;
    // The end of a job ticks in between; rates are per full tick.
    if (elapsed_ns >= TELEMETRY_LOOK_MS * 1000000ULL / 2)
        look_at_rates(b, sums, now_ns);
    list_each(it, &b->jobs)
    {
        struct box_job *j = list_entry(it, struct box_job, node);
        j->scope.before = j->now;
    }
    b->whole.before = *sums;
    b->tick_ns = now_ns;
}
