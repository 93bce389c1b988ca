// From the messages of the wire to the plain structs of stockade.h. What is made lives in the arena that the message was
// unpacked into and borrows its strings; sub-messages that a broker left out read as zero and "".
//
// Each returns false when the arena is full.
#pragma once

#include <stdbool.h>

#include "../proto/arena.h"
#include "stockade.h"

struct Stockade__V1__Finding;
struct Stockade__V1__InfoResponse;
struct Stockade__V1__NetworkPolicy;
struct Stockade__V1__Process;
struct Stockade__V1__Record;
struct Stockade__V1__Result;
struct Stockade__V1__Sandbox;

bool result_from(struct stockade_result *to, struct arena *a,
                 const struct Stockade__V1__Result *from);
bool sandbox_from(struct stockade_sandbox *to, struct arena *a,
                  const struct Stockade__V1__Sandbox *from);
// (policies.c)
bool policy_from(struct stockade_policy *to, struct arena *a,
                 const struct Stockade__V1__NetworkPolicy *from);
bool process_from(struct stockade_process *to, struct arena *a,
                  const struct Stockade__V1__Process *from);
// (records.c)
bool record_from(struct stockade_record *to, struct arena *a,
                 const struct Stockade__V1__Record *from);
// (anomalies.c)
struct stockade_finding finding_from(const struct Stockade__V1__Finding *m);
bool info_from(struct stockade_info *to, struct arena *a,
               const struct Stockade__V1__InfoResponse *from);
