// SPDX-License-Identifier: Apache-2.0
// A job and its result as messages, for answers and for records that are kept. What is made lives in the arena, and borrows
// from the job; NULL means that the arena is full.
#pragma once

#include "proto/arena.h"
#include "stockade/v1/process_service.pb-c.h"

struct job;
struct job_result;

Stockade__V1__Result *job_message_result(struct arena *a, const struct job_result *r);

// Without the record in its result: a page has many of them.
Stockade__V1__Process *job_message_process(struct arena *a, const struct job *j);
