// SPDX-License-Identifier: Apache-2.0
// See detect.h: a rule of a file as it is compared with events.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "config_read.h"
#include "detect_private.h"
#include "glob.h"
#include "quantity.h"
#include "yaml_tree.h"

enum {
    WINDOW_MIN_MS = 100,
    WINDOW_MAX_MS = 3600 * 1000,
    WINDOW_MS = 60 * 1000,
    DISTINCT_MAX = 1024,
    GLOB_STEPS = 4, // comparisons that a pattern is worth
    LABEL_STEPS = 16,
};

// What is being made.
struct making {
    const struct config_reader *file;
    struct arena *a;
    const Stockade__V1__DetectionDocument *doc;
};

struct yaml_node *
detect_node(struct yaml_node *n, const char *key)
{
    for (struct yaml_node *it = n->child; it != NULL; it = it->next)
        if (it->key != NULL && strcmp(it->key, key) == 0)
            return it;
    return n;
}

static int
no_memory(const struct making *w)
{
    return err_sys(w->file->e, ENOMEM, "read a rule");
}

// ---- texts

static int
compare_words(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const size_t n = strlen(x), m = strlen(y);
    return n != m ? (n < m ? -1 : 1) : memcmp(x, y, n);
}

static const Stockade__V1__DetectionSet *
find_set(const struct making *w, const char *name)
{
    for (size_t i = 0; i < w->doc->n_sets; i++)
        if (strcmp(w->doc->sets[i]->name, name) == 0)
            return w->doc->sets[i];
    return NULL;
}

// A rule that is shown can be read again, without the sets of its file.
static void
show_words(const Stockade__V1__DetectionText *m, const struct detect_words *words)
{
    Stockade__V1__DetectionText *to = (Stockade__V1__DetectionText *)(uintptr_t)m; // the file's own
    if (m->n_sets == 0)
        return;
    to->exact = words->word;
    to->n_exact = words->n;
    to->n_sets = 0;
}

static int
make_words(const struct making *w, const Stockade__V1__DetectionText *m, struct yaml_node *node,
           struct detect_words *out)
{
    size_t n = m->n_exact, at = 0;
    for (size_t i = 0; i < m->n_sets; i++) {
        const Stockade__V1__DetectionSet *s = find_set(w, m->sets[i]);
        if (s == NULL)
            return config_fail(w->file, detect_node(node, "sets"), "this file has no set %s",
                               m->sets[i]);
        n += s->n_values;
    }
    out->word = arena_alloc(w->a, (n + 1) * sizeof(void *));
    out->length = arena_alloc(w->a, (n + 1) * sizeof *out->length);
    if (out->word == NULL || out->length == NULL)
        return no_memory(w);
    for (size_t i = 0; i < m->n_exact; i++)
        out->word[at++] = m->exact[i];
    for (size_t i = 0; i < m->n_sets; i++) {
        const Stockade__V1__DetectionSet *s = find_set(w, m->sets[i]);
        for (size_t k = 0; s != NULL && k < s->n_values; k++)
            out->word[at++] = s->values[k];
    }
    qsort(out->word, n, sizeof(void *), compare_words);
    for (size_t i = 0; i < n; i++)
        out->length[i] = (uint32_t)strlen(out->word[i]);
    out->n = n;
    show_words(m, out);
    return 0;
}

static int
make_text(const struct making *w, const Stockade__V1__DetectionText *m, struct yaml_node *node,
          struct detect_part *out, uint32_t *steps)
{
    out->prefix_n = m->n_prefix;
    out->prefix = m->prefix;
    out->suffix_n = m->n_suffix;
    out->suffix = m->suffix;
    out->glob_n = m->n_glob;
    out->glob = m->glob;
    const int r = make_words(w, m, node, &out->exact);
    if (r < 0)
        return r;
    if (out->prefix_n + out->suffix_n + out->glob_n + out->exact.n == 0)
        return config_fail(w->file, node, "needs exact, prefix, suffix, glob or sets");
    *steps += (uint32_t)(out->prefix_n + out->suffix_n + out->glob_n * GLOB_STEPS);
    for (size_t n = out->exact.n; n > 0; n /= 2)
        ++*steps;
    return 0;
}

// ---- numbers and addresses

static int
make_number(const struct making *w, const Stockade__V1__DetectionNumber *m, struct yaml_node *node,
            struct detect_part *out, uint32_t *steps)
{
    out->numbers_n = m->n_exact;
    out->number = m->exact;
    out->min = m->min;
    out->max = m->max;
    out->has_range = m->min != 0 || m->max != 0;
    if (!out->has_range && out->numbers_n == 0)
        return config_fail(w->file, node, "needs exact, min or max");
    if (m->max != 0 && m->max < m->min)
        return config_fail(w->file, detect_node(node, "max"), "is lower than min");
    *steps += (uint32_t)out->numbers_n + 1;
    return 0;
}

static bool
read_network(const char *text, struct detect_network *out)
{
    char address[64];
    bool v4 = false;
    const size_t n = strcspn(text, "/");
    char *end = NULL;
    if (n >= sizeof address)
        return false;
    memcpy(address, text, n);
    address[n] = '\0';
    if (!detect_read_address(address, out->address, &v4))
        return false;
    const unsigned long most = v4 && strchr(address, ':') == NULL ? 32 : 128;
    unsigned long bits = most;
    if (text[n] == '/') {
        if (text[n + 1] < '0' || text[n + 1] > '9')
            return false;
        bits = strtoul(text + n + 1, &end, 10);
        if (*end != '\0' || bits > most)
            return false;
    }
    out->bits = (uint32_t)(bits + (128 - most));
    return true;
}

static int
make_networks(const struct making *w, const Stockade__V1__DetectionNetworks *m,
              struct yaml_node *node, struct detect_part *out, uint32_t *steps)
{
    struct yaml_node *it = detect_node(node, "within")->child;
    out->network = arena_alloc(w->a, (m->n_within + 1) * sizeof *out->network);
    if (out->network == NULL)
        return no_memory(w);
    for (size_t i = 0; i < m->n_within; i++, it = it->next)
        if (!read_network(m->within[i], &out->network[i]))
            return config_fail(w->file, it, "must be a network such as 10.0.0.0/8");
    out->networks_n = m->n_within;
    if (m->n_within == 0)
        return config_fail(w->file, node, "needs within");
    *steps += (uint32_t)m->n_within;
    return 0;
}

// ---- fields

static int
make_part(const struct making *w, const ProtobufCFieldDescriptor *f, const void *m,
          struct yaml_node *node, struct detect_part *out, uint32_t *steps)
{
    *out = (struct detect_part){.field = f->id - 1};
    if (f->descriptor == &stockade__v1__detection_text__descriptor)
        return make_text(w, m, node, out, steps);
    if (f->descriptor == &stockade__v1__detection_networks__descriptor)
        return make_networks(w, m, node, out, steps);
    return make_number(w, m, node, out, steps);
}

static int
make_parts(const struct making *w, const Stockade__V1__DetectionFields *m, struct yaml_node *node,
           struct detect_parts *out)
{
    const ProtobufCMessageDescriptor *type = &stockade__v1__detection_fields__descriptor;
    int r = 0;
    out->part = arena_alloc(w->a, (type->n_fields + 1) * sizeof *out->part);
    if (out->part == NULL)
        return no_memory(w);
    for (unsigned i = 0; i < type->n_fields && r == 0; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        const void *value = NULL;
        if (f->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        memcpy((void *)&value, (const char *)m + f->offset, sizeof(void *));
        if (value != NULL)
            r = make_part(w, f, value, detect_node(node, f->name), &out->part[out->n++],
                          &out->steps);
    }
    if (r == 0 && m->n_labels > 0) {
        out->part[out->n++] =
            (struct detect_part){.field = DETECT_LABELS, .glob_n = m->n_labels, .glob = m->labels};
        out->steps += (uint32_t)m->n_labels * LABEL_STEPS;
    }
    if (r == 0 && out->n == 0)
        r = config_fail(w->file, node, "names no field");
    return r;
}

static int
make_list(const struct making *w, size_t n, Stockade__V1__DetectionFields *const *m,
          struct yaml_node *list, struct detect_parts **out, uint32_t *steps)
{
    struct yaml_node *it = list->child;
    *out = arena_alloc(w->a, (n + 1) * sizeof **out);
    if (*out == NULL)
        return no_memory(w);
    for (size_t i = 0; i < n; i++, it = it->next) {
        const int r = make_parts(w, m[i], it, &(*out)[i]);
        if (r < 0)
            return r;
        *steps += (*out)[i].steps;
    }
    return 0;
}

static int
make_match(const struct making *w, const Stockade__V1__DetectionMatch *m, struct yaml_node *node,
           struct detect_match *out)
{
    *out = (struct detect_match){.all_n = (uint32_t)m->n_all,
                                 .any_n = (uint32_t)m->n_any,
                                 .not_n = (uint32_t)m->n_not_,
                                 .steps = 1};
    for (size_t i = 0; i < m->n_kinds; i++)
        if ((uint32_t)m->kinds[i] < DETECT_KINDS)
            out->kinds[m->kinds[i] / 64] |= UINT64_C(1) << m->kinds[i] % 64;
    if (m->n_kinds == 0)
        return config_fail(w->file, node, "needs kinds: one or more kinds of events");
    int r = make_list(w, m->n_all, m->all, detect_node(node, "all"), &out->all, &out->steps);
    if (r == 0)
        r = make_list(w, m->n_any, m->any, detect_node(node, "any"), &out->any, &out->steps);
    if (r == 0)
        r = make_list(w, m->n_not_, m->not_, detect_node(node, "not"), &out->not, &out->steps);
    return r;
}

// ---- the count

static int
make_steps(const struct making *w, const Stockade__V1__DetectionAggregate *m,
           struct yaml_node *node, struct detect_rule *out)
{
    struct yaml_node *it = detect_node(node, "steps")->child;
    if (out->m->match != NULL)
        return config_fail(w->file, node, "a sequence has steps, and no match beside it");
    if (m->n_steps < 2)
        return config_fail(w->file, node, "a sequence needs at least 2 steps");
    for (size_t i = 0; i < m->n_steps; i++, it = it->next) {
        const int r = make_match(w, m->steps[i], it, &out->match[i]);
        if (r < 0)
            return r;
        out->steps += out->match[i].steps;
    }
    out->matches_n = (uint32_t)m->n_steps;
    return 0;
}

static int
check_function(const struct making *w, const Stockade__V1__DetectionAggregate *m,
               struct yaml_node *node, struct detect_rule *out)
{
    const bool distinct =
        out->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_DISTINCT;
    const bool sum = out->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_SUM ||
                     out->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_GREATEST;
    if ((distinct || sum) != (out->of >= 0))
        return config_fail(w->file, detect_node(node, "of"),
                           distinct || sum ? "distinct, sum and greatest need the field `of`"
                                           : "only distinct, sum and greatest have a field `of`");
    if (sum && out->of <= DETECT_ADDRESS)
        return config_fail(w->file, detect_node(node, "of"),
                           "a sum needs a number, and so does greatest");
    if (distinct && out->threshold > DISTINCT_MAX)
        return config_fail(w->file, detect_node(node, "threshold"),
                           "a distinct count goes up to %d", DISTINCT_MAX);
    if (out->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_SEQUENCE)
        return m->threshold > 1 ? config_fail(w->file, detect_node(node, "threshold"),
                                              "a sequence has no threshold")
                                : 0;
    return m->n_steps > 0
               ? config_fail(w->file, detect_node(node, "steps"), "only a sequence has steps")
               : 0;
}

static int
make_aggregate(const struct making *w, const Stockade__V1__DetectionAggregate *m,
               struct yaml_node *node, struct detect_rule *out)
{
    uint64_t window_ms = WINDOW_MS;
    if (m->window[0] != '\0' &&
        (quantity_read(m->window, quantity_time_ms, &window_ms) < 0 || window_ms < WINDOW_MIN_MS ||
         (window_ms > WINDOW_MAX_MS && !out->m->tripwire)))
        return config_fail(w->file, detect_node(node, "window"),
                           "must be a time from 100ms to 1h, such as 30s");
    out->window_ns = window_ms * 1000000;
    out->function = m->function;
    out->per = m->per;
    out->by = (int)m->by - 1;
    out->of = (int)m->of - 1;
    for (size_t i = 0; i < m->n_once_for; i++)
        if (m->once_for[i] != STOCKADE__V1__DETECTION_FIELD__DETECTION_FIELD_UNSPECIFIED)
            out->once[out->once_n++] = (int)m->once_for[i] - 1;
    out->threshold = m->threshold != 0 ? m->threshold : 1;
    if (m->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_RATE)
        out->threshold = (out->threshold * window_ms + 999) / 1000;
    const int r = check_function(w, m, node, out);
    if (r < 0 || m->function != STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_SEQUENCE)
        return r;
    return make_steps(w, m, node, out);
}

// ---- a rule

static int
make_exceptions(const struct making *w, struct yaml_node *list, struct detect_rule *out)
{
    struct yaml_node *it = list->child;
    out->exception = arena_alloc(w->a, (out->m->n_exceptions + 1) * sizeof *out->exception);
    if (out->exception == NULL)
        return no_memory(w);
    for (size_t i = 0; i < out->m->n_exceptions; i++, it = it->next) {
        const int r = make_parts(w, out->m->exceptions[i]->match, detect_node(it, "match"),
                                 &out->exception[out->exceptions_n++]);
        if (r < 0)
            return r;
        out->steps += out->exception[i].steps;
    }
    return 0;
}

static int
check_message(const struct making *w, struct yaml_node *node, struct detect_rule *out)
{
    const Stockade__V1__DetectionRule *m = out->m;
    size_t n = 0;
    const char *usual = m->tripwire ? "{event}" : m->description;
    out->message = m->message[0] != '\0' ? m->message : usual;
    if (out->message[0] == '\0')
        return config_fail(w->file, node, "needs a message or a description");
    const char *wrong = detect_wrong_word(out->message, m->tripwire, &n);
    if (wrong == NULL)
        return 0;
    return config_fail(w->file,
                       detect_node(node, m->message[0] != '\0' ? "message" : "description"),
                       "{%.*s} is no field, {count} or {window}", n < 40 ? (int)n : 40, wrong);
}

static int
make_condition(const struct making *w, struct yaml_node *node, struct detect_rule *out)
{
    out->matches_n = 1;
    const int r = make_match(w, out->m->match, detect_node(node, "match"), &out->match[0]);
    out->steps += out->match[0].steps;
    return r;
}

// The broker counts for each job and for its sandbox, so that no key displaces another.
static int
make_tripwire(const struct making *w, struct yaml_node *node, struct detect_rule *out)
{
    const Stockade__V1__DetectionRule *m = out->m;
    const Stockade__V1__DetectionAggregate *a = m->aggregate;
    if (a != NULL && (a->per != 0 || a->by != 0 || a->keys != 0 || a->n_steps > 0 ||
                      a->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_RATE ||
                      a->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_SUM))
        return config_fail(w->file, detect_node(node, "aggregate"),
                           "a tripwire counts for each job and its sandbox: it has only function "
                           "(count, distinct or greatest), of, threshold, window and once_for");
    if (m->match != NULL && m->builtin != NULL)
        return config_fail(w->file, detect_node(node, "builtin"),
                           "a rule has match or a built-in condition, not both");
    int r = check_message(w, node, out);
    if (r == 0 && a != NULL)
        r = make_aggregate(w, a, detect_node(node, "aggregate"), out);
    if (r == 0 && m->match != NULL)
        r = make_condition(w, node, out);
    if (r == 0)
        r = make_exceptions(w, detect_node(node, "exceptions"), out);
    return r;
}

static int
check_plain(const struct making *w, const Stockade__V1__DetectionRule *m, struct yaml_node *node)
{
    if (m->builtin != NULL || m->counter[0] != '\0')
        return config_fail(w->file, detect_node(node, m->builtin != NULL ? "builtin" : "counter"),
                           "only tripwires of the broker have it");
    return 0;
}

int
detect_make_rule(const struct config_reader *file, struct arena *a,
                 const Stockade__V1__DetectionDocument *doc, const Stockade__V1__DetectionRule *m,
                 struct yaml_node *node, struct detect_rule *out)
{
    const struct making w = {file, a, doc};
    *out = (struct detect_rule){.m = m,
                                .file = file->name,
                                .line = node->line,
                                .enabled = !m->disabled,
                                .by = -1,
                                .of = -1,
                                .threshold = 1,
                                .window_ns = WINDOW_MS * UINT64_C(1000000)};
    if (m->tripwire)
        return make_tripwire(&w, node, out);
    int r = check_plain(&w, m, node);
    if (r == 0)
        r = check_message(&w, node, out);
    if (r == 0 && m->aggregate != NULL)
        r = make_aggregate(&w, m->aggregate, detect_node(node, "aggregate"), out);
    if (r == 0 && out->matches_n == 0) {
        if (m->match == NULL)
            return config_fail(file, node, "needs match, or a sequence");
        r = make_condition(&w, node, out);
    }
    if (r == 0)
        r = make_exceptions(&w, detect_node(node, "exceptions"), out);
    return r;
}
