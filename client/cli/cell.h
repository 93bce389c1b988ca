// SPDX-License-Identifier: Apache-2.0
// A cell of code and what it shows: output and results as text, pictures inline on a terminal that can show them, else as
// files; or everything kept for `-o json`.
#pragma once

#include <stdbool.h>
#include <jansson.h>

#include "cli.h"
#include "sink.h"

enum cell_pictures { PICTURES_NONE, PICTURES_FILES, PICTURES_KITTY, PICTURES_ITERM };

struct cell {
    const struct command *command;
    const struct options *options;
    struct stockade *s;
    struct sink sink;
    bool capturing; // -o json
    enum cell_pictures pictures;
    const char *folder; // for PICTURES_FILES
    char context_id[CLI_ID_SIZE], sandbox_id[CLI_ID_SIZE];
    // the result that is coming: its forms that are kept
    struct capture form, text, picture;
    char mime[101], picture_mime[101];
    json_t *forms, *results, *error; // owned
    bool at_line_start;              // of stdout
    bool unsaved;                    // a picture of the cell could not be saved
};

// Whether pictures can be saved in the folder of --pictures, before code runs for them. EXIT_OK, or the code after a report.
int cell_check_folder(const struct command *c, const char *folder);

// How pictures are shown on this stdout. folder: where files go; NULL: nowhere.
void cell_begin(struct cell *c, const char *folder);
void cell_free(struct cell *c);

// Runs a cell and shows it. 0: *end is to be freed with stockade_free(). Negative: *e.
int cell_run(struct cell *c, const struct stockade_code_options *o,
             const struct stockade_code_end **end, struct stockade_error *e);

// The exit code for the end of a cell; reports on stderr what the output does not show.
int cell_judge(const struct cell *c, const struct stockade_code_end *end);

// Prints the cell as one JSON object. An exit code.
int cell_put_json(struct cell *c, const struct stockade_code_end *end);

// The language of a file by its name, or NULL.
const char *cell_language_of(const char *file);
