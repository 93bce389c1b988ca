// SPDX-License-Identifier: Apache-2.0
// The details of an event, by name. Pure.
#pragma once

#include <string.h>

#include "client/stockade.h"

// NULL: it has none of this name.
static inline const struct stockade_fact *
fact(const struct stockade_event *event, const char *name)
{
    for (size_t i = 0; i < event->facts_n; i++)
        if (strcmp(event->facts[i].name, name) == 0)
            return &event->facts[i];
    return NULL;
}

// "" and 0 if it has none.
static inline const char *
fact_text(const struct stockade_event *event, const char *name)
{
    const struct stockade_fact *f = fact(event, name);
    return f != NULL && f->type == STOCKADE_FACT_TEXT ? f->text : "";
}

static inline uint64_t
fact_number(const struct stockade_event *event, const char *name)
{
    const struct stockade_fact *f = fact(event, name);
    return f != NULL && f->type != STOCKADE_FACT_TEXT ? f->number : 0;
}
