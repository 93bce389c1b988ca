// SPDX-License-Identifier: Apache-2.0
// See finding_message.h.
#include "finding_message.h"

#include <string.h>

#include "convert.h"
#include "server/anomaly/silences.h"
#include "server/base/server.h"

static bool
make_labels(struct arena *a, const struct finding *f, Stockade__V1__Finding *m)
{
    const char *at = f->labels;
    m->metadata = arena_alloc(a, sizeof(void *) * (f->labels_n + 1));
    for (uint32_t i = 0; m->metadata != NULL && i < f->labels_n; i++) {
        Stockade__V1__Finding__MetadataEntry *entry =
            wire_make(a, &stockade__v1__finding__metadata_entry__descriptor);
        if (entry == NULL)
            return false;
        entry->key = at;
        entry->value = at + strlen(at) + 1;
        at = entry->value + strlen(entry->value) + 1;
        m->metadata[m->n_metadata++] = entry;
    }
    return m->metadata != NULL;
}

bool
finding_message_acknowledge(struct arena *a, Stockade__V1__Finding *m,
                            const struct acknowledged *of)
{
    Stockade__V1__Acknowledgement *one = wire_make(a, &stockade__v1__acknowledgement__descriptor);
    if (m->acknowledgements == NULL)
        m->acknowledgements = arena_alloc(a, 2 * sizeof(void *));
    if (one == NULL || m->acknowledgements == NULL)
        return false;
    one->by = of->by;
    one->by_host = of->by_host;
    one->reason = of->reason;
    one->time = convert_wall(a, of->time_ms);
    m->acknowledgements[m->n_acknowledgements++] = one;
    return one->time != NULL;
}

static bool
acknowledgements(struct arena *a, const struct server *s, const struct finding *f,
                 Stockade__V1__Finding *m)
{
    for (int host = 0; host < 2; host++) {
        const struct acknowledged *of =
            acknowledged_find(s->silences, m->instance, f->sequence, host != 0);
        if (of != NULL && !finding_message_acknowledge(a, m, of))
            return false;
    }
    return true;
}

Stockade__V1__Finding *
finding_message(struct arena *a, const struct server *s, const struct finding *f,
                const char *instance)
{
    Stockade__V1__Finding *m = wire_make(a, &stockade__v1__finding__descriptor);
    if (m == NULL)
        return NULL;
    m->time =
        wire_make_time(a, (int64_t)(f->time_ns / 1000000000), (int32_t)(f->time_ns % 1000000000));
    if (m->time == NULL)
        return NULL;
    m->rule = f->rule;
    m->severity = (Stockade__V1__Severity)f->severity;
    m->text = f->text;
    m->score = f->score;
    m->threshold = f->threshold;
    m->response = finding_response_name(f->response);
    m->sandbox_id = f->sandbox_id;
    m->process_id = f->process_id;
    m->template_ = f->template;
    m->sequence = f->sequence;
    m->pid = f->pid;
    m->comm = f->comm;
    m->sandbox_name = f->sandbox_name;
    m->tenant_rule = f->tenant_rule;
    m->silence_id = f->silence;
    m->silenced = f->silenced;
    m->instance = instance;
    m->tags = arena_alloc(a, FINDING_TAGS_MAX * sizeof(void *));
    if (m->tags == NULL)
        return NULL;
    m->n_tags = finding_tag_list(f, m->tags);
    return make_labels(a, f, m) && acknowledgements(a, s, f, m) ? m : NULL;
}
