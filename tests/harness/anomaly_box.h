// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the tripwires: a box with the default policy, the kernel's events, and the raised findings.
#pragma once

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "bpf/net.h"
#include "server/anomaly/box.h"
#include "server/telemetry/finding.h"

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

extern struct anomaly_config policy;
extern struct box box;
extern uint64_t now_ns;
extern unsigned raised[ANOMALY_RULES];   // reported findings
extern unsigned counted[ANOMALY_RULES];  // withheld findings
extern unsigned answered[ANOMALY_RULES]; // repeated responses
extern uint32_t about;                   // number of the job of the last finding
extern double score;
extern char said[FINDING_TEXT_MAX];

int set_up(void **state);
int tear_down(void **state); // of the group: frees the conditions
void enter(struct box_job *j);
void give(const struct event *e, const void *body, enum box_exe exe);
void event(uint32_t kind, const void *body, size_t n);
void dial(uint32_t kind, uint8_t host, uint16_t port);
void exec_path(const char *path, bool memfd, enum box_exe exe, uint64_t inode);
