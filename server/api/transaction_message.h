// SPDX-License-Identifier: Apache-2.0
// A transaction as a message, for transaction.c and the streams.
#pragma once

#include <stdint.h>

#include "proto/arena.h"
#include "server/snapshot/transaction.h"
#include "stockade/v1/transaction_service.pb-c.h"

// conflicts_max: how many of its conflicts. NULL: out of memory.
Stockade__V1__Transaction *transaction_message(struct arena *a, const struct transaction *t,
                                               uint32_t conflicts_max);
