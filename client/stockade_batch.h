// SPDX-License-Identifier: Apache-2.0
// libstockade: many jobs of one program, whose results come as the jobs end. A part of stockade.h, which includes it and describes
// calls, threads and ownership. ProcessService.RunBatch in proto/stockade/v1/process_service.proto describes the batch.
//
//   static int next(void *cookie, uint64_t number, struct stockade_batch_job *job)   { job->command.args = ...; return 1; }
//   static int on_result(void *cookie, const struct stockade_batch_result *r)        { ...; return 0; }
//
//   struct stockade_batch_options o = STOCKADE_BATCH_OPTIONS_INIT;
//   struct stockade_batch_handlers h = {next, on_result, cookie};
//   rc = stockade_batch(s, &o, &h, &e);
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct stockade_batch_job {
    const char *key; // any text of at most 128 bytes, which comes back with the result; NULL: ""
    struct stockade_command command;
    struct stockade_limits limits; // what is 0 comes from the batch
};

// Everything in it is valid until on_result returns.
struct stockade_batch_result {
    uint64_t number; // of the job
    const char *key;
    const char *process_id; // "": it was never started
    const struct stockade_result *result;
    struct stockade_bytes output[2]; // of stdout and stderr
    uint64_t missing_bytes;          // of output that is not there
};

// How far a batch is.
struct stockade_batch_state {
    uint64_t accepted; // jobs; next() is called for none of them any more
    uint64_t results;
    bool complete; // all jobs were accepted
    bool lost;     // the connection is being made again
};

struct stockade_batch_options {
    size_t size;
    const char *key; // unique among the caller's batches; NULL: a random one
    // continue the batch of this key, within a minute: its jobs that were accepted do not run again
    bool resume;
    const char *template_name;
    struct stockade_limits limits;        // of each job
    enum stockade_network network;        // of each job
    const struct stockade_policy *policy; // instead of `network`, unless NULL
    const struct stockade_mount *mounts;
    size_t mounts_n;
    // jobs follow each other in the same sandboxes, of which processes, files and memory are reset
    bool reset_files;
    uint32_t parallel;    // jobs that run at a time; 0: two for each CPU of the host
    uint32_t window;      // jobs that the broker has ahead of the results, at most 4,096; 0: 256
    uint64_t deadline_ms; // for the whole batch; 0: none
    // Waits until `fd` is readable, or next() has more, or something else is to be done, for at most timeout_ms. A value other than 0
    // cancels the batch. NULL: the library waits for the connection. It gets the cookie of the handlers, and may not use the handle.
    int (*wait)(void *cookie, const struct stockade_batch_state *state, int fd, int timeout_ms);
    // with reset_files: "python": jobs whose command is `python3 -c CODE` are forked from a warm interpreter; NULL: none are
    const char *warm;
};
#define STOCKADE_BATCH_OPTIONS_INIT STOCKADE_INIT(stockade_batch_options)

// What next() returns.
enum stockade_batch_next {
    STOCKADE_BATCH_NO_MORE = 0, // there are not that many jobs
    STOCKADE_BATCH_JOB = 1,
    STOCKADE_BATCH_LATER = 2, // it is not known yet; the library asks again after the next wait
};

// None may use the handle.
struct stockade_batch_handlers {
    // Fills in job `number`, counted from 0, which is all zero before. Returns enum stockade_batch_next; a negative value cancels the
    // batch. Its strings and arrays must stay valid until the library calls one of the two again. After a lost connection
    // it may call this with the same number again.
    int (*next)(void *cookie, uint64_t number, struct stockade_batch_job *job);
    // A job has ended, in any way. A value other than 0 cancels the batch.
    int (*on_result)(void *cookie, const struct stockade_batch_result *r);
    void *cookie;
};

// Runs a batch and waits for its end. A connection that breaks is made again, for a minute, and no job runs twice. It dispatches other
// calls of the handle meanwhile, as stockade_pump() does. CANCELLED: by a handler; the jobs that are left are cancelled.
// DEADLINE_EXCEEDED: not all jobs were accepted in time. NOT_FOUND: the broker was restarted, and it is unknown whether jobs without a
// result were executed.
STOCKADE_API int stockade_batch(struct stockade *s, const struct stockade_batch_options *o,
                                const struct stockade_batch_handlers *h, struct stockade_error *e);

#ifdef __cplusplus
}
#endif
