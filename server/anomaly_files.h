// SPDX-License-Identifier: Apache-2.0
// Profiles on disk: STATE_DIR/profiles/TEMPLATE.profile, in a folder that belongs to the broker.
//
// Root makes the folder before it gives itself up and never looks into it again, so what the broker writes there can
// deceive nobody but the broker, which holds the profiles anyway. Learning takes many runs: a restart must not forget them.
#pragma once

#include "anomaly_profiles.h"

#define ANOMALY_FOLDER "profiles"

// What was saved, if anything was; told in the log where it cannot be used.
void anomaly_load(const char *state_dir, struct profiles *p, uint32_t template);

// Writes it, whole or not at all; removes it where there is nothing to keep.
int anomaly_store(const char *state_dir, struct profiles *p, uint32_t template, struct err *e);
