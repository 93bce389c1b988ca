// See anomaly_box.h. Rules about events; those about figures are in anomaly_ticks.c, those about names in anomaly_names.c.
#include "anomaly_box.h"

#include <linux/keyctl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "../bpf/net.h"
#include "anomaly_box_private.h"
#include "log.h"
#include "net_rule.h"
#include "syscall_names.h"

void
box_init(struct box *b, const struct anomaly_config *policy, uint32_t cpu_millis,
         void (*raise)(void *cookie, enum anomaly_rule rule, double score, const char *text),
         void *cookie)
{
    *b = (struct box){.policy = policy, .raise = raise, .cookie = cookie, .cpu_millis = cpu_millis};
}

uint64_t
box_hash(const void *bytes, size_t n, uint64_t seed)
{
    const uint8_t *p = bytes;
    uint64_t h = 0xcbf29ce484222325ULL ^ (seed * 0x9e3779b97f4a7c15ULL);
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3ULL;
    h ^= h >> 29;
    return h != 0 ? h : 1;
}

bool
box_first(struct box *b, uint64_t subject)
{
    uint32_t n = b->told_n < BOX_TOLD ? b->told_n : BOX_TOLD;
    for (uint32_t i = 0; i < n; i++)
        if (b->told[i] == subject)
            return false;
    b->told[b->told_n++ % BOX_TOLD] = subject;
    return true;
}

int64_t
box_window_add(struct box_window *w, uint64_t now_ns, uint64_t window_ms, int32_t n)
{
    uint64_t at = now_ns / (window_ms * 1000000 / BOX_BUCKETS);
    uint64_t gone = at > w->at ? at - w->at : 0;
    for (uint64_t i = 1; i <= gone && i <= BOX_BUCKETS; i++)
        w->bucket[(w->at + i) % BOX_BUCKETS] = 0;
    w->at += gone;
    int64_t sum = 0;
    if (__builtin_add_overflow(w->bucket[w->at % BOX_BUCKETS], n, &w->bucket[w->at % BOX_BUCKETS]))
        w->bucket[w->at % BOX_BUCKETS] = n > 0 ? INT32_MAX : INT32_MIN;
    for (int i = 0; i < BOX_BUCKETS; i++)
        sum += w->bucket[i];
    return sum;
}

void
box_raise(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double score, const char *text)
{
    uint64_t minute = now_ns / 60000000000ULL;
    if (minute != b->minute) {
        b->minute = minute;
        b->findings = 0;
        b->raised = 0;
    }
    // Noise of one rule must not keep another, whose answer may be to kill, from being raised.
    bool first = (b->raised >> rule & 1) == 0;
    if (!first && b->findings >= BOX_FINDINGS_BURST) {
        b->suppressed++;
        return;
    }
    b->raised |= 1U << rule;
    b->findings++;
    b->raise(b->cookie, rule, score, text);
}

bool
box_crossed(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double score)
{
    const struct anomaly_policy *p = box_rule(b, rule);
    if (p->enabled != 1 || score < (double)p->threshold || now_ns < b->quiet_ns[rule])
        return false;
    b->quiet_ns[rule] = now_ns + p->window_ms * 1000000;
    return true;
}

void
box_count(struct box *b, enum anomaly_rule rule, uint64_t now_ns, uint64_t subject,
          const char *text)
{
    const struct anomaly_policy *p = box_rule(b, rule);
    int64_t n = box_window_add(&b->window[rule], now_ns, p->window_ms, 1);
    if (p->enabled != 1 || n < (int64_t)p->threshold)
        return;
    if (box_first(b, subject + rule))
        box_raise(b, rule, now_ns, (double)n, text);
}

// ---- who was connected to

static uint64_t
place_hash(const struct net_event *e)
{
    return box_hash(e->address, sizeof e->address, e->port + 1U);
}

// How many different destinations were refused within the window.
static void
count_denied(struct box *b, const struct net_event *e, uint64_t now_ns)
{
    uint64_t hash = place_hash(e);
    uint64_t from = now_ns - (now_ns < box_rule(b, RULE_DENIED_FAN_OUT)->window_ms * 1000000
                                  ? now_ns
                                  : box_rule(b, RULE_DENIED_FAN_OUT)->window_ms * 1000000);
    uint32_t oldest = 0;
    uint32_t mine = BOX_DISTINCT;
    uint32_t n = 0;
    for (uint32_t i = 0; i < BOX_DISTINCT; i++) {
        if (b->denied[i].hash == hash)
            mine = i;
        else if (b->denied[i].hash != 0 && b->denied[i].at_ns >= from)
            n++;
        if (b->denied[i].at_ns < b->denied[oldest].at_ns)
            oldest = i;
    }
    if (mine == BOX_DISTINCT) {
        mine = oldest;
        n -= n == BOX_DISTINCT ? 1 : 0;
    }
    b->denied[mine].hash = hash;
    b->denied[mine].at_ns = now_ns;
    n++;
    if (!box_crossed(b, RULE_DENIED_FAN_OUT, now_ns, n))
        return;
    char place[64];
    char text[ANOMALY_TEXT_MAX];
    net_rule_address(e->address, e->port, place, sizeof place);
    (void)snprintf(text, sizeof text,
                   "%u different destinations were refused within %llu s, the last one %s", n,
                   (unsigned long long)box_rule(b, RULE_DENIED_FAN_OUT)->window_ms / 1000, place);
    box_raise(b, RULE_DENIED_FAN_OUT, now_ns, n, text);
}

static struct box_place *
find_place(struct box *b, uint64_t hash)
{
    struct box_place *oldest = &b->place[0];
    for (uint32_t i = 0; i < BOX_PLACES; i++) {
        if (b->place[i].hash == hash)
            return &b->place[i];
        if (b->place[i].last_ns < oldest->last_ns)
            oldest = &b->place[i];
    }
    *oldest = (struct box_place){.hash = hash};
    return oldest;
}

// Connections at regular intervals: 100 less the coefficient of variation of the intervals, in percent.
static void
count_beat(struct box *b, const struct net_event *e, uint64_t now_ns)
{
    const struct anomaly_policy *rule = box_rule(b, RULE_BEACONING);
    struct box_place *p = find_place(b, place_hash(e));
    uint64_t last = p->last_ns;
    p->last_ns = now_ns;
    if (last == 0 || now_ns < last || now_ns - last > rule->window_ms * 1000000) {
        p->intervals = 0;
        p->mean = p->squares = 0;
        return;
    }
    float interval = (float)(now_ns - last) / 1e6F;
    p->intervals++;
    float off = interval - p->mean;
    p->mean += off / (float)p->intervals;
    p->squares += off * (interval - p->mean);
    if (p->intervals + 1 < BOX_BEATS_MIN || p->mean < BOX_BEAT_MIN_MS)
        return;
    double regular = 100 - 100 * sqrt((double)p->squares / p->intervals) / (double)p->mean;
    if (!box_crossed(b, RULE_BEACONING, now_ns, regular))
        return;
    char place[64];
    char text[ANOMALY_TEXT_MAX];
    net_rule_address(e->address, e->port, place, sizeof place);
    (void)snprintf(text, sizeof text,
                   "%u connections to %s, one every %.1f s, %.0f percent regular", p->intervals + 1,
                   place, (double)p->mean / 1000, regular);
    box_raise(b, RULE_BEACONING, now_ns, regular, text);
}

static void
count_port(struct box *b, const struct net_event *e, uint64_t now_ns)
{
    if (now_ns - b->ports_cleared_ns > 10000000000ULL) {
        memset(b->port_bits, 0, sizeof b->port_bits);
        b->ports_cleared_ns = now_ns;
    }
    uint64_t bit = place_hash(e) % BOX_PORT_BITS;
    uint64_t mask = UINT64_C(1) << (bit % 64);
    if ((b->port_bits[bit / 64] & mask) == 0)
        b->ports++;
    b->port_bits[bit / 64] |= mask;
}

static void
on_network(struct box *b, const struct event *head, const struct net_event *e)
{
    bool dials = e->hook == NET_HOOK_CONNECT || e->hook == NET_HOOK_SENDMSG;
    if (dials) {
        count_port(b, e, head->time_ns);
        count_beat(b, e, head->time_ns);
    }
    if (head->kind == EVENT_DENIED && (dials || e->hook == NET_HOOK_EGRESS))
        count_denied(b, e, head->time_ns);
}

// ---- what was executed, opened, called

// A path is bytes that a job chose: escaped as in the log.
static void
quote(char *out, size_t n, const char *path, uint32_t path_n, uint32_t max)
{
    char raw[WATCH_PATH + 1];
    uint32_t len = path_n < max ? path_n : max;
    memcpy(raw, path, len);
    raw[len] = '\0';
    (void)log_escape(raw, out, n);
}

// "PATH" and what there is to say of it.
static void
tell_exec(struct box *b, const struct event *head, const struct watch_exec *e,
          enum anomaly_rule rule, uint64_t subject, const char *says)
{
    char path[160];
    char text[ANOMALY_TEXT_MAX];
    quote(path, sizeof path, e->path, e->path_n, WATCH_PATH);
    (void)snprintf(text, sizeof text, "\"%s\" was executed%s", path, says);
    box_count(b, rule, head->time_ns, subject, text);
}

static void
on_exec(struct box *b, const struct event *head, const struct watch_exec *e, enum box_exe exe)
{
    if (e->memfd != 0) {
        b->seen[RULE_UNNAMED_EXEC]++;
        tell_exec(b, head, e, RULE_UNNAMED_EXEC, 1, ", a file without a name");
    } else if (exe == BOX_EXE_NEW) {
        tell_exec(b, head, e, RULE_NEW_EXECUTABLE, box_hash(&e->exe, sizeof e->exe, 3),
                  ", which the template's profile does not know");
    }
    if (e->socket != 0)
        tell_exec(b, head, e, RULE_REMOTE_SHELL, 4,
                  " with one socket as its stdin, stdout and stderr");
}

static void
on_open(struct box *b, const struct event *head, const struct watch_open *e)
{
    char path[200] = "";
    char text[ANOMALY_TEXT_MAX];
    b->seen[RULE_SENSITIVE_PATH]++;
    quote(path, sizeof path, e->path, e->path_n, WATCH_PATH);
    (void)snprintf(text, sizeof text, "\"%s\" was opened", path);
    box_count(b, RULE_SENSITIVE_PATH, head->time_ns, box_hash(path, strlen(path), 5), text);
}

// A session keyring of one's own, without a name: what every job begins with, and what harms nobody.
static bool
is_harmless(const struct watch_syscall *e)
{
    return e->number == SYS_keyctl && (uint32_t)e->args[0] == KEYCTL_JOIN_SESSION_KEYRING &&
           e->args[1] == 0;
}

static void
on_syscall(struct box *b, const struct event *head, const struct watch_syscall *e)
{
    if (is_harmless(e))
        return;
    char text[ANOMALY_TEXT_MAX];
    char args[64] = "";
    bool uring = head->kind == EVENT_URING;
    const char *end = e->result < 0 ? strerrorname_np(-e->result) : NULL;
    b->seen[RULE_IO_URING] += uring ? 1 : 0;
    if (e->number == SYS_socket)
        (void)snprintf(args, sizeof args, "(family %u, type %u)", (uint32_t)e->args[0],
                       (uint32_t)e->args[1] & 0xf);
    (void)snprintf(text, sizeof text, "%s%s was called%s%s", syscall_name(e->number), args,
                   e->result < 0 ? ", and refused: " : "",
                   end != NULL ? end : (e->result < 0 ? "unknown error" : ""));
    box_count(b, uring ? RULE_IO_URING : RULE_DANGEROUS_SYSCALL, head->time_ns,
              uring ? 2 : box_hash(&e->number, sizeof e->number, 7), text);
}

static void
on_oom(struct box *b, const struct event *head)
{
    b->seen[RULE_OOM]++;
    box_count(b, RULE_OOM, head->time_ns, box_hash(&head->time_ns, sizeof head->time_ns, 9),
              "a process was killed since the sandbox's memory was used up");
}

// Calls that honest work is refused now and then are learnt; one that never was is told, each once.
static void
on_refusal(struct box *b, const struct event *head, const struct watch_score *e, const char *comm)
{
    char text[ANOMALY_TEXT_MAX];
    uint64_t subject = UINT64_C(1) << 63 | (uint64_t)e->profile << 32 | e->last[2];
    (void)snprintf(text, sizeof text, "%s was refused to \"%s\", which never happened to it before",
                   syscall_name(e->last[2]), comm);
    box_count(b, RULE_NEW_REFUSAL, head->time_ns, subject, text);
}

static void
on_profile(struct box *b, const struct event *head, const struct watch_score *e)
{
    char comm[64];
    char raw[sizeof head->comm + 1] = {0};
    char text[ANOMALY_TEXT_MAX];
    memcpy(raw, head->comm, sizeof head->comm);
    (void)log_escape(raw, comm, sizeof comm);
    if (e->last[0] == WATCH_REFUSED && e->last[1] == WATCH_REFUSED) {
        on_refusal(b, head, e, comm);
        return;
    }
    if (!box_crossed(b, RULE_UNSEEN_SEQUENCE, head->time_ns, e->unseen))
        return;
    (void)snprintf(text, sizeof text,
                   "%u of %u sequences of system calls of \"%s\" are not in its profile, the last "
                   "%s, %s, %s",
                   e->unseen, e->window, comm, syscall_name(e->last[0]), syscall_name(e->last[1]),
                   syscall_name(e->last[2]));
    box_raise(b, RULE_UNSEEN_SEQUENCE, head->time_ns, e->unseen, text);
}

void
box_event(struct box *b, const struct event *event, const void *body, enum box_exe exe)
{
    static const uint32_t sizes[EVENT_KINDS] = {
        [EVENT_DENIED] = sizeof(struct net_event),
        [EVENT_CONNECT] = sizeof(struct net_event),
        [EVENT_EXEC] = sizeof(struct watch_exec),
        [EVENT_OPEN] = sizeof(struct watch_open),
        [EVENT_DANGEROUS] = sizeof(struct watch_syscall),
        [EVENT_URING] = sizeof(struct watch_syscall),
        [EVENT_PROFILE] = sizeof(struct watch_score),
    };
    if (event->kind >= EVENT_KINDS || event->size < sizes[event->kind])
        return;
    if (event->kind == EVENT_DENIED || event->kind == EVENT_CONNECT)
        on_network(b, event, body);
    else if (event->kind == EVENT_EXEC)
        on_exec(b, event, body, exe);
    else if (event->kind == EVENT_OPEN)
        on_open(b, event, body);
    else if (event->kind == EVENT_DANGEROUS || event->kind == EVENT_URING)
        on_syscall(b, event, body);
    else if (event->kind == EVENT_OOM)
        on_oom(b, event);
    else if (event->kind == EVENT_PROFILE)
        on_profile(b, event, body);
}
