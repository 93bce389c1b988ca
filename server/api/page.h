// SPDX-License-Identifier: Apache-2.0
// One page of a list: how many elements fit, where the next page goes on, and what becomes of the call.
//
//   page_begin() -> for each element behind p.last: page_has_room() -> page_add() -> fields of the response -> page_reply()
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
    uint64_t last;                // order of the last element, also of pages before
    bool full, no_memory;         // there are more; there is no memory for one
    char token[PAGE_TOKEN_BYTES]; // of the next page; "": this is the last
};

// size 0: the usual. The token is "" or that of a page before (the order of its last element, 16 hex digits). INVALID_ARGUMENT:
// it is none. Without memory the page is empty and says so in page_reply(). On success *p owns: page_free().
int page_begin(struct page *p, uint32_t size, const char *token, struct err *e);

// False: the page ends here, and another one follows.
bool page_has_room(struct page *p);

// The next element (NULL: there was no memory for it) and its order. False without memory.
bool page_add(struct page *p, uint64_t order, void *element);

// Ends the call with the response, or with an error where there was no memory.
void page_reply(const struct page *p, struct call *c, const ProtobufCMessage *response);

void page_free(struct page *p);

// struct page auto_page p = {0};
#define auto_page __attribute__((cleanup(page_free)))
