// SPDX-License-Identifier: Apache-2.0
// libstockade: cells of code in contexts that keep their variables. A part of stockade.h, which includes it and describes
// calls, threads and ownership. proto/stockade/v1/code_service.proto describes the fields.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum stockade_code_state {
    STOCKADE_CODE_UNKNOWN = 0,
    STOCKADE_CODE_STARTING = 1,
    STOCKADE_CODE_IDLE = 2,
    STOCKADE_CODE_BUSY = 3,
    STOCKADE_CODE_DOWN = 4,
};

struct stockade_context {
    const char *id, *sandbox_id;
    const char *language, *workdir;
    uint32_t state; // enum stockade_code_state
    uint32_t execution_count, waiting;
    int64_t created_ms; // since 1970
    bool is_default;
    const char *process_id; // "": no interpreter runs
};

struct stockade_contexts {
    const struct stockade_context *items; // oldest first
    size_t n;
};

struct stockade_context_options {
    size_t size;
    const char *sandbox;  // id or name
    const char *language; // python, bash, javascript; NULL: python
    const char *workdir;  // NULL: the template's
    const struct stockade_pair *env;
    size_t env_n;
    const struct stockade_call_options *call;
};
#define STOCKADE_CONTEXT_OPTIONS_INIT STOCKADE_INIT(stockade_context_options)

// A cell. With `context` it runs there; with `sandbox` in the sandbox's default context for the language; with neither in a
// fresh sandbox, which is destroyed afterwards.
struct stockade_code_options {
    size_t size;
    const char *code;
    const char *context;
    const char *sandbox; // id or name
    const char *language;
    uint64_t timeout_ms; // 0: none, or 60 s in a fresh sandbox
    // Of a fresh sandbox:
    const char *template_name;
    struct stockade_limits limits; // without wall_ms and output_bytes
    enum stockade_network network;
    const struct stockade_policy *policy; // instead of `network`, unless NULL
    const struct stockade_pair *env;
    size_t env_n;
    const struct stockade_call_options *call;
    // NULL: the cell has its effects (stockade_simulation.h)
    const struct stockade_simulate *simulate;
    // Of a fresh sandbox:
    const struct stockade_mount *mounts;
    size_t mounts_n; // at most 8
};
#define STOCKADE_CODE_OPTIONS_INIT STOCKADE_INIT(stockade_code_options)

// A part of a result: the next bytes of one of its forms.
struct stockade_code_part {
    const char *mime_type;
    const void *bytes;
    size_t n;
    bool main; // the value of the last expression, not something that was displayed
    bool more; // more bytes of this form follow
    bool last; // the last part of this result
};

// As struct stockade_handlers: each may be NULL; a value other than 0 cancels the call, which interrupts the cell.
struct stockade_code_handlers {
    // fresh: the interpreter has run no cell before this one.
    int (*on_begin)(void *cookie, const char *context_id, const char *sandbox_id, bool fresh);
    int (*on_output)(void *cookie, int stream, const void *bytes, size_t n);
    int (*on_part)(void *cookie, const struct stockade_code_part *part);
    int (*on_error)(void *cookie, const char *name, const char *value, const char *traceback);
    void *cookie;
};

enum stockade_code_status {
    STOCKADE_CODE_STATUS_UNKNOWN = 0,
    STOCKADE_CODE_OK = 1,
    STOCKADE_CODE_ERROR = 2, // on_error got it
    STOCKADE_CODE_INTERRUPTED = 3,
    STOCKADE_CODE_CRASHED = 4, // the interpreter ended: see reason
    STOCKADE_CODE_TIMEOUT = 5,
    STOCKADE_CODE_CANCELLED = 6,
};

struct stockade_code_end {
    uint32_t status;          // enum stockade_code_status
    uint32_t execution_count; // 0: unknown
    const char *reason;       // or ""
    bool lost;                // the variables are lost
    struct stockade_bill bill;
    const struct stockade_limit_hit *limit;       // that ended the interpreter; NULL: none
    const struct stockade_simulation *simulation; // of a cell that was simulated; otherwise NULL
};

// Runs a cell and waits for its end. Code that fails is not a failure of the call: see the end. h and out may be NULL.
STOCKADE_API int stockade_run_code(struct stockade *s, const struct stockade_code_options *o,
                                   const struct stockade_code_handlers *h,
                                   const struct stockade_code_end **out, struct stockade_error *e);

STOCKADE_API int stockade_context_create(struct stockade *s,
                                         const struct stockade_context_options *o,
                                         const struct stockade_context **out,
                                         struct stockade_error *e);
STOCKADE_API int stockade_context_list(struct stockade *s, const char *sandbox,
                                       const struct stockade_contexts **out,
                                       struct stockade_error *e);
// Ends its interpreter; the next cell gets a fresh one.
STOCKADE_API int stockade_context_restart(struct stockade *s, const char *context,
                                          struct stockade_error *e);
// Stops the running cell, as ^C does.
STOCKADE_API int stockade_context_interrupt(struct stockade *s, const char *context,
                                            struct stockade_error *e);
STOCKADE_API int stockade_context_delete(struct stockade *s, const char *context,
                                         struct stockade_error *e);

// ---- live state

// The live state of a python context at one moment.
struct stockade_checkpoint {
    const char *name; // unique in its sandbox
    const char *sandbox_id, *context_id;
    const char *language;
    uint32_t execution_count;
    uint64_t memory_bytes; // private memory at that moment: the most that it costs
    int64_t created_ms;    // since 1970
    const char *lost;      // why it cannot be used any more, or ""
};

struct stockade_checkpoints {
    const struct stockade_checkpoint *items; // oldest first
    size_t n;
};

// Keeps the live state of a context. name NULL: the broker makes one. STOCKADE_FAILED_PRECONDITION with the reason LIVE_STATE:
// the context holds something that cannot be kept, and e->text says what.
STOCKADE_API int stockade_context_checkpoint(struct stockade *s, const char *context,
                                             const char *name,
                                             const struct stockade_checkpoint **out,
                                             struct stockade_error *e);
// Gives a context the state of a checkpoint of its sandbox; its own state is lost. out may be NULL.
STOCKADE_API int stockade_context_restore(struct stockade *s, const char *context,
                                          const char *checkpoint,
                                          const struct stockade_context **out,
                                          struct stockade_error *e);
// Makes a context with the state of a checkpoint, or (NULL) of the context itself.
STOCKADE_API int stockade_context_fork(struct stockade *s, const char *context,
                                       const char *checkpoint, const struct stockade_context **out,
                                       struct stockade_error *e);
STOCKADE_API int stockade_checkpoint_list(struct stockade *s, const char *sandbox,
                                          const struct stockade_checkpoints **out,
                                          struct stockade_error *e);
STOCKADE_API int stockade_checkpoint_delete(struct stockade *s, const char *sandbox,
                                            const char *name, struct stockade_error *e);

#ifdef __cplusplus
}
#endif
