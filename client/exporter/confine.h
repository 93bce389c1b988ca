// SPDX-License-Identifier: Apache-2.0
// The exporter gives up root, and continues as the account "stockade-exporter". The rest is proto/confine.h, and the unit's
// SystemCallFilter.
#pragma once

#include "proto/err.h"

// Before anything is opened. As root: FAILED_PRECONDITION without the account.
int confine_account(struct err *e);
