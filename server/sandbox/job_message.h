// SPDX-License-Identifier: Apache-2.0
// Converts a job and its result to messages, for responses and for kept records. The result is allocated in the
// arena, and borrows from the job; NULL means that the arena is full.
#pragma once

#include "proto/arena.h"
#include "bill.h"
#include "stockade/v1/process_service.pb-c.h"

struct job;
struct job_result;

// The bill without the reasons of unknown figures. The message borrows `figures`, which it fills.
void job_message_bill(Stockade__V1__Bill *m, Stockade__V1__Figure figures[BILL_FIGURES_N],
                      const struct bill *b);

Stockade__V1__Result *job_message_result(struct arena *a, const struct job_result *r);

// Omits the record in its result, because a page contains many processes.
Stockade__V1__Process *job_message_process(struct arena *a, const struct job *j);
