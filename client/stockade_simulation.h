// SPDX-License-Identifier: Apache-2.0
// libstockade: simulations, of jobs and cells of code. A part of stockade.h, which includes it and describes calls, threads and
// ownership. proto/stockade/v1/simulation.proto describes what a simulation is and the fields.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// What a destination says, such as "example.com:443": at most 2,048 bytes.
struct stockade_simulated_answer {
    const char *destination;
    const void *reply;
    size_t reply_n;
};

// How to simulate a job: a member of the options of stockade_run(), stockade_start() (with `foreground`) and stockade_run_code().
struct stockade_simulate {
    const struct stockade_simulated_answer *answers;
    size_t answers_n; // at most 16
};

// What a job would have sent to one destination.
struct stockade_simulated_connection {
    const char *destination;
    const char *protocol; // "tcp", "udp" or "dns"
    uint32_t rule;        // of the network policy, from 1; 0: its mode allows it
    const void *data;     // the first bytes
    size_t data_n;
    uint64_t out_bytes, in_bytes;
};

// What would be refused.
struct stockade_simulated_refusal {
    const char *operation; // "call": all of it, by a policy of the host
    const char *destination, *protocol, *reason, *rule;
    bool would_ask; // people would be asked
    uint64_t count;
};

// What a simulated job did. Lists hold the first ones.
struct stockade_simulation {
    bool executed; // false: `refused` says why not
    const struct stockade_change *changes;
    size_t changes_n;
    bool more;
    const char *unknown; // why the changes are not known; "": they are
    const struct stockade_simulated_connection *sent;
    size_t sent_n;
    uint64_t sent_total;
    bool sent_lost; // there may be more
    const struct stockade_simulated_refusal *refused;
    size_t refused_n;
    uint64_t refused_total;
    const char *const *not_included; // what it could not show
    size_t not_included_n;
};

#ifdef __cplusplus
}
#endif
