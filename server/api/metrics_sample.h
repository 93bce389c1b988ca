// SPDX-License-Identifier: Apache-2.0
// Gauges that are read for each response of MetricsService: the longest wait, open descriptors, memory, entries of maps.
// Loop thread only.
#pragma once

struct server;

void metrics_sample(const struct server *s);
