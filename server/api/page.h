// SPDX-License-Identifier: Apache-2.0
// One page of a list: how many elements fit, where the next page continues, and how the call ends.
//
//   page_open() -> for each element after p.last: page_has_room() -> page_add() -> fields of the response -> page_reply()
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/arena.h"
#include "proto/err.h"
#include "proto/wire.h"

struct call;

enum { PAGE_TOKEN_BYTES = 17 };

struct page {
    struct arena *arena; // of the elements; *owned*
    void *elements;      // an array of `n` pointers to messages
    size_t n, most;
    uint64_t last;                // order of the last element, also of previous pages
    bool full, no_memory;         // more elements follow; out of memory
    char token[PAGE_TOKEN_BYTES]; // token of the next page; "": this is the last
};

// size 0: the default. The token is "" or that of the previous page (the order of its last element, 16 hex digits).
// INVALID_ARGUMENT: invalid. Without memory the page is empty, and page_reply() reports it. On success *p owns
// memory: page_free().
int page_begin(struct page *p, uint32_t size, const char *token, struct err *e);

// The same for a handler that has nothing else to check. False: it ended the call with the error.
bool page_open(struct page *p, struct call *c, uint32_t size, const char *token);

// False: the page ends here, and another one follows.
bool page_has_room(struct page *p);

// Adds the next element (NULL: there was no memory for it) with its order. False: out of memory.
bool page_add(struct page *p, uint64_t order, void *element);

// Ends the call with the response, or with an error if memory was short.
void page_reply(const struct page *p, struct call *c, const ProtobufCMessage *response);

void page_free(struct page *p);

// struct page auto_page p = {0};
#define auto_page __attribute__((cleanup(page_free)))
