// SPDX-License-Identifier: Apache-2.0
// See detect.h: the fields of events, and the sentence of a finding.
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "detect_private.h"
#include "host_port.h"
#include "utf8.h"

const char *const detect_field_name[DETECT_FIELDS] = {
    [DETECT_EXECUTABLE] = "executable",
    [DETECT_COMM] = "comm",
    [DETECT_PATH] = "path",
    [DETECT_ARGUMENTS] = "arguments",
    [DETECT_CWD] = "cwd",
    [DETECT_OPERATION] = "operation",
    [DETECT_DESTINATION] = "destination",
    [DETECT_NAME] = "name",
    [DETECT_PROTOCOL] = "protocol",
    [DETECT_REASON] = "reason",
    [DETECT_CALL] = "call",
    [DETECT_RULE] = "rule",
    [DETECT_TEMPLATE] = "template",
    [DETECT_SANDBOX_NAME] = "sandbox_name",
    [DETECT_TENANT] = "tenant",
    [DETECT_ADDRESS] = "address",
    [DETECT_PORT] = "port",
    [DETECT_UID] = "uid",
    [DETECT_ERROR] = "error",
    [DETECT_FLAGS] = "flags",
    [DETECT_SIGNAL] = "signal",
    [DETECT_CODE] = "code",
    [DETECT_BYTES] = "bytes",
    [DETECT_IN_BYTES] = "in_bytes",
    [DETECT_UNNAMED] = "unnamed",
    [DETECT_LABELS] = "",
    [DETECT_ON_SOCKET] = "on_socket",
    [DETECT_UNNAMED_ARGUMENT] = "unnamed_argument",
    [DETECT_UNPROFILED] = "unprofiled",
    [DETECT_OWN_TOOL] = "own_tool",
    [DETECT_UNSEEN] = "unseen",
    [DETECT_FIRST_REFUSAL] = "first_refusal",
    [DETECT_INODE] = "inode",
    [DETECT_PROFILE] = "profile",
    [DETECT_TIME] = "time",
};
_Static_assert((int)DETECT_FIELDS == STOCKADE__V1__DETECTION_FIELD__DETECTION_FIELD_TIME,
               "the numbers of the schema, without the first");
_Static_assert(DETECT_FIELDS <= 64, "a bit each");

int
detect_field_find(const char *name, size_t n)
{
    for (int i = 0; i < DETECT_FIELDS; i++)
        if (n > 0 && strlen(detect_field_name[i]) == n &&
            memcmp(detect_field_name[i], name, n) == 0)
            return i;
    return -1;
}

// ---- addresses

bool
detect_read_address(const char *text, uint8_t out[16], bool *v4)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (inet_pton(AF_INET6, text, out) == 1) {
        *v4 = memcmp(out, mapped, sizeof mapped) == 0;
        return true;
    }
    *v4 = true;
    memcpy(out, mapped, sizeof mapped);
    return inet_pton(AF_INET, text, out + sizeof mapped) == 1;
}

void
detect_write_network(const struct detect_network *network, const char *ports, char *out, size_t n)
{
    char address[INET6_ADDRSTRLEN] = "", bits[8] = "";
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const bool v4 = network->bits >= 96 && memcmp(network->address, mapped, sizeof mapped) == 0 &&
                    inet_ntop(AF_INET, network->address + 12, address, sizeof address) != NULL;
    if (!v4)
        (void)inet_ntop(AF_INET6, network->address, address, sizeof address);
    if (network->bits < 128)
        (void)snprintf(bits, sizeof bits, "/%u", network->bits - (v4 ? 96 : 0));
    (void)snprintf(out, n, v4 || ports[0] == '\0' ? "%s%s%s%s" : "[%s%s]%s%s", address, bits,
                   ports[0] != '\0' ? ":" : "", ports);
}

// "192.0.2.1:443", "[2001:db8::1]:53", "example.org:80", "example.org", or something else, such as a path.
static void
read_destination(struct detect_event *ev, const char *text)
{
    const bool bracket = text[0] == '[';
    const char *end = strchr(text, bracket ? ']' : ':');
    const char *colon = end != NULL && bracket ? (end[1] == ':' ? end + 1 : NULL) : end;
    const size_t n = end != NULL ? (size_t)(end - text) - bracket : strlen(text);
    uint16_t port = 0;
    bool v4 = false;
    if (n == 0 || n >= sizeof ev->host || text[0] == '/')
        return;
    memcpy(ev->host, text + bracket, n);
    ev->host[n] = '\0';
    if (colon != NULL && host_port_number(colon + 1, &port))
        detect_set_number(ev, DETECT_PORT, port);
    // An IPv6 address without brackets has no port.
    const bool bare = !bracket && colon != NULL && strchr(colon + 1, ':') != NULL;
    if (detect_read_address(bare ? text : ev->host, ev->address, &v4)) {
        ev->has |= UINT64_C(1) << DETECT_ADDRESS;
        if (bare)
            ev->has &= ~(UINT64_C(1) << DETECT_PORT);
    } else if (!bare && ev->text[DETECT_NAME] == NULL &&
               ev->host[strspn(ev->host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789.-_")] == '\0') {
        detect_set_text(ev, DETECT_NAME, ev->host);
    }
}

// ---- one field

void
detect_set_text(struct detect_event *ev, enum detect_field field, const char *text)
{
    if (text == NULL || text[0] == '\0')
        return;
    ev->text[field] = text;
    ev->has |= UINT64_C(1) << field;
}

void
detect_set_number(struct detect_event *ev, enum detect_field field, uint64_t number)
{
    ev->number[field - DETECT_TEXTS] = number;
    ev->has |= UINT64_C(1) << field;
}

static void
set_destination(struct detect_event *ev, const char *text)
{
    detect_set_text(ev, DETECT_DESTINATION, text);
    if (ev->text[DETECT_DESTINATION] != NULL)
        read_destination(ev, text);
}

// ---- an event of the broker

static void
fill_exec(const Stockade__V1__Execution *x, struct detect_event *out)
{
    detect_set_text(out, DETECT_EXECUTABLE, x->path);
    detect_set_text(out, DETECT_ARGUMENTS, x->arguments);
    detect_set_text(out, DETECT_CWD, x->cwd);
    detect_set_number(out, DETECT_UID, x->uid);
    detect_set_number(out, DETECT_UNNAMED, x->unnamed ? 1 : 0);
    detect_set_number(out, DETECT_ON_SOCKET, x->on_socket ? 1 : 0);
    detect_set_number(out, DETECT_UNNAMED_ARGUMENT, x->unnamed_argument ? 1 : 0);
    detect_set_number(out, DETECT_UNPROFILED, x->unprofiled ? 1 : 0);
    detect_set_number(out, DETECT_INODE, x->inode);
}

static void
fill_flow(const Stockade__V1__Event *m, struct detect_event *out)
{
    const Stockade__V1__Flow *f = m->flow;
    detect_set_text(out, DETECT_NAME, f->name);
    detect_set_text(out, DETECT_PROTOCOL, f->protocol);
    detect_set_text(out, DETECT_REASON, f->reason);
    set_destination(out, f->destination);
    if (m->kind != STOCKADE__V1__EVENT_KIND__EVENT_KIND_FLOW_ENDED)
        return;
    detect_set_number(out, DETECT_BYTES, f->out_bytes);
    detect_set_number(out, DETECT_IN_BYTES, f->in_bytes);
}

static void
fill_denial(const Stockade__V1__Denial *d, struct detect_event *out)
{
    detect_set_text(out, DETECT_OPERATION, d->operation);
    detect_set_text(out, DETECT_PROTOCOL, d->protocol);
    detect_set_text(out, DETECT_REASON, d->reason);
    set_destination(out, d->destination);
}

static void
fill_job(const Stockade__V1__Event *m, struct detect_event *out)
{
    const Stockade__V1__JobFacts *j = m->job;
    detect_set_text(out, DETECT_EXECUTABLE, j->n_args > 0 ? j->args[0] : NULL);
    detect_set_text(out, DETECT_REASON, j->reason);
    if (m->kind != STOCKADE__V1__EVENT_KIND__EVENT_KIND_JOB_ENDED)
        return;
    detect_set_number(out, DETECT_CODE, j->exit_code);
    detect_set_number(out, DETECT_SIGNAL, j->signal);
}

static void
fill_file(const Stockade__V1__FileOpen *f, struct detect_event *out)
{
    detect_set_text(out, DETECT_PATH, f->resolved[0] != '\0' ? f->resolved : f->path);
    detect_set_text(out, DETECT_OPERATION, f->operation);
    detect_set_number(out, DETECT_FLAGS, f->flags);
    detect_set_number(out, DETECT_ERROR, f->error);
}

static void
fill_score(const Stockade__V1__ProfileScore *s, struct detect_event *out)
{
    detect_set_number(out, DETECT_UNSEEN, s->unseen);
    detect_set_number(out, DETECT_FIRST_REFUSAL, s->first_refusal ? 1 : 0);
    detect_set_text(out, DETECT_CALL, s->n_calls > 0 ? s->calls[s->n_calls - 1] : NULL);
}

static void
fill_call(const Stockade__V1__SystemCall *c, struct detect_event *out)
{
    detect_set_text(out, DETECT_CALL, c->name);
    out->ruled = c->ruled;
    // The kernel ignores the upper halves of what it takes as int: families, types, requests, ids of processes.
    (void)snprintf(out->called, sizeof out->called, "%" PRIu32 " %" PRIu32, (uint32_t)c->first,
                   (uint32_t)c->second);
    detect_set_text(out, DETECT_ARGUMENTS, out->called);
    detect_set_number(out, DETECT_ERROR, c->result < 0 ? (uint64_t)-c->result : 0);
}

static void
fill_detail(const Stockade__V1__Event *m, struct detect_event *out)
{
    switch ((int)m->detail_case) {
    case STOCKADE__V1__EVENT__DETAIL_EXECUTION:
        fill_exec(m->execution, out);
        return;
    case STOCKADE__V1__EVENT__DETAIL_EXIT:
        detect_set_number(out, DETECT_CODE, m->exit->code);
        detect_set_number(out, DETECT_SIGNAL, m->exit->signal);
        return;
    case STOCKADE__V1__EVENT__DETAIL_FILE:
        fill_file(m->file, out);
        return;
    case STOCKADE__V1__EVENT__DETAIL_SIGNAL:
        detect_set_number(out, DETECT_SIGNAL, m->signal->signal);
        return;
    case STOCKADE__V1__EVENT__DETAIL_CALL:
        fill_call(m->call, out);
        return;
    case STOCKADE__V1__EVENT__DETAIL_DENIAL:
        fill_denial(m->denial, out);
        return;
    case STOCKADE__V1__EVENT__DETAIL_FLOW:
        fill_flow(m, out);
        return;
    case STOCKADE__V1__EVENT__DETAIL_JOB:
        fill_job(m, out);
        return;
    case STOCKADE__V1__EVENT__DETAIL_LIMIT:
        detect_set_text(out, DETECT_REASON, m->limit->name);
        return;
    case STOCKADE__V1__EVENT__DETAIL_FINDING:
        detect_set_text(out, DETECT_RULE, m->finding->rule);
        return;
    case STOCKADE__V1__EVENT__DETAIL_NOTE:
        detect_set_text(out, DETECT_REASON, m->note);
        return;
    case STOCKADE__V1__EVENT__DETAIL_TERMINAL:
        detect_set_text(out, DETECT_EXECUTABLE, m->terminal->shell);
        detect_set_number(out, DETECT_ON_SOCKET, 1);
        return;
    case STOCKADE__V1__EVENT__DETAIL_SCORE:
        fill_score(m->score, out);
        return;
    case STOCKADE__V1__EVENT__DETAIL_CREDENTIAL:
        detect_set_text(out, DETECT_REASON, m->credential->reason);
        detect_set_text(out, DETECT_DESTINATION, m->credential->address);
        return;
    case STOCKADE__V1__EVENT__DETAIL_TRANSFER:
        detect_set_text(out, DETECT_PATH, m->transfer->path);
        detect_set_text(out, DETECT_OPERATION, m->transfer->direction);
        detect_set_number(out, DETECT_BYTES, m->transfer->bytes);
        return;
    default:
        return;
    }
}

void
detect_fill(const Stockade__V1__Event *m, uint64_t now_ns, struct detect_event *out)
{
    out->kind = (uint32_t)m->kind;
    out->has = 0;
    out->times = 0;
    out->ruled = false;
    out->now_ns = now_ns;
    out->job = m->process_id;
    out->sandbox = m->sandbox_id;
    out->sentence = out->values = NULL;
    memset(out->text, 0, sizeof out->text);
    detect_set_number(out, DETECT_TIME, now_ns);
    detect_set_text(out, DETECT_COMM, m->comm);
    detect_set_text(out, DETECT_TEMPLATE, m->template_);
    detect_set_text(out, DETECT_SANDBOX_NAME, m->sandbox_name);
    detect_set_text(out, DETECT_TENANT, m->tenant);
    out->labels_n = 0;
    for (size_t i = 0; i < m->n_metadata && i < DETECT_LABELS_MAX; i++) {
        out->label_key[i] = m->metadata[i]->key;
        out->label_value[i] = m->metadata[i]->value;
        out->labels_n++;
    }
    fill_detail(m, out);
}

// ---- the sentence

// The values of an event are bytes that a job chose. Only whole characters are copied.
static size_t
put(char *out, size_t at, const char *text, size_t n)
{
    for (size_t i = 0, one = 0; i < n; i += one) {
        one = utf8_decode(text + i, n - i, NULL);
        const bool bad = one == 0 || (unsigned char)text[i] < ' ' || text[i] == 0x7f;
        one = bad ? 1 : one;
        if (at + one >= DETECT_TEXT)
            break;
        memcpy(out + at, bad ? "?" : text + i, one);
        at += one;
    }
    return at;
}

static size_t
put_field(const struct detect_event *ev, int field, char *out, size_t at)
{
    char number[INET6_ADDRSTRLEN + 1] = "none";
    if (field < DETECT_TEXTS) {
        const char *text = ev->text[field] != NULL ? ev->text[field] : "none";
        // A long value leaves room for the rest of the sentence.
        const size_t n = strlen(text), most = DETECT_TEXT / 2;
        return put(out, at, text, n < most ? n : most);
    }
    if ((ev->has >> field & 1) != 0 && field == DETECT_ADDRESS)
        (void)inet_ntop(AF_INET6, ev->address, number, sizeof number);
    else if ((ev->has >> field & 1) != 0)
        (void)snprintf(number, sizeof number, "%llu",
                       (unsigned long long)ev->number[field - DETECT_TEXTS]);
    return put(out, at, number, strlen(number));
}

// Words of a message that are no fields.
enum { WORD_NONE, WORD_COUNT, WORD_WINDOW, WORD_EVENT, WORD_VALUES };

static int
find_word(const char *word, size_t n)
{
    static const char *const words[] = {
        [WORD_COUNT] = "count",
        [WORD_WINDOW] = "window",
        [WORD_EVENT] = "event",
        [WORD_VALUES] = "values",
    };
    for (int i = WORD_COUNT; i <= WORD_VALUES; i++)
        if (strlen(words[i]) == n && memcmp(words[i], word, n) == 0)
            return i;
    return WORD_NONE;
}

static size_t
put_word(const struct detect_rule *r, const struct detect_said *said, const char *word, size_t n,
         char *out, size_t at)
{
    char number[32];
    const char *text = number;
    switch (find_word(word, n)) {
    case WORD_EVENT:
        text = said->event->sentence != NULL ? said->event->sentence : r->m->description;
        break;
    case WORD_VALUES:
        text = said->event->values != NULL ? said->event->values : "...";
        break;
    case WORD_WINDOW:
        (void)snprintf(number, sizeof number, "%g s", (double)said->window_ns / 1e9);
        break;
    case WORD_COUNT:
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)said->score);
        break;
    default:
        return put_field(said->event, detect_field_find(word, n), out, at);
    }
    return put(out, at, text, strlen(text));
}

const char *
detect_wrong_word(const char *message, bool tripwire, size_t *n)
{
    for (const char *p = strchr(message, '{'); p != NULL; p = strchr(p + 1, '{')) {
        *n = strcspn(p + 1, "}");
        const int word = find_word(p + 1, *n);
        const bool known =
            word != WORD_NONE ? word < WORD_EVENT || tripwire : detect_field_find(p + 1, *n) >= 0;
        if (!known || p[1 + *n] != '}')
            return p + 1;
    }
    return NULL;
}

const char *
detect_write(const struct detect_rule *r, const struct detect_said *said, char out[DETECT_TEXT])
{
    size_t at = 0;
    const char *p = r->message;
    while (*p != '\0') {
        const size_t plain = strcspn(p, "{");
        at = put(out, at, p, plain);
        p += plain;
        if (*p != '{')
            break;
        const size_t n = strcspn(p + 1, "}");
        at = put_word(r, said, p + 1, n, out, at);
        p += 1 + n + (p[1 + n] == '}');
    }
    out[at] = '\0';
    return out;
}
