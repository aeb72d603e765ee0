// secrets: new ones, and how they are stored: sealed when ROWBELL_SECRET_KEY is set here.
#pragma once
#include "cli/command.h"
#include "common/buffer.h"
#include "common/seal.h"
#include <json-c/json.h>

struct new_secret {
    struct buffer text;  // itself; empty: the database makes one, and returns it
    struct buffer shown; // what the receiver needs: the secret, or the public key; empty: nothing, who gave it knows it
    bool is_public;      // shown is an Ed25519 public key (whpk_...)
};

// From --ed25519 or --secret-file of the command. Wipe it in any case. ERROR_USAGE or ERROR_IO, never with the secret.
bool new_secret_make(struct cli *cli, const struct seal_keys *keys, struct new_secret *secret, struct error *ret_error);
// As the database gets it, unsealed; empty: it makes one.
void new_secret_plain(const struct new_secret *secret, struct buffer *ret_form);
void new_secret_wipe(struct new_secret *secret);
// What a person or a program is told. `from_database` is the secret that the database made, "" for none.
void new_secret_print(const struct new_secret *secret, const char *from_database, json_object *json);

bool secrets_keys(struct seal_keys *keys, struct error *ret_error); // of ROWBELL_SECRET_KEY

// Where the secrets of a subscription open. False with ERROR_SQL: there is none of this name.
struct secret_place {
    char seal_id[40];
    bool is_index;
};
bool secret_place_read(struct cli *cli, const char *name, struct secret_place *ret_place, struct error *ret_error);
// Signs, or authorizes at a search engine.
struct seal_place secret_place_main(const struct secret_place *place);
// Seals the text for this subscription, which is there, and stores it as its only secret.
bool secret_store_sealed(struct cli *cli, const struct seal_keys *keys, const char *name, const char *text,
                         struct error *ret_error);
void secret_wipe(struct buffer *buffer);
