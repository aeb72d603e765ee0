// secrets: new ones, and how they are stored: sealed when ROWBELL_SECRET_KEY is set here.
#pragma once
#include "cli/command.h"
#include "common/buffer.h"
#include "common/seal.h"
#include <json-c/json.h>

struct new_secret {
    struct buffer stored; // as the database gets it; empty: the database makes one, and returns it
    struct buffer shown; // what the receiver needs: the secret, or the public key; empty: nothing, who gave it knows it
    bool is_public;      // shown is an Ed25519 public key (whpk_...)
};

// From --ed25519 or --secret-file of the command. Wipe it in any case. ERROR_USAGE or ERROR_IO, never with the secret.
bool new_secret_make(struct cli *cli, const struct seal_keys *keys, struct new_secret *secret, struct error *ret_error);
void new_secret_wipe(struct new_secret *secret);
// What a person or a program is told. `from_database` is the secret that the database made, "" for none.
void new_secret_print(const struct new_secret *secret, const char *from_database, json_object *json);

bool secrets_keys(struct seal_keys *keys, struct error *ret_error); // of ROWBELL_SECRET_KEY
