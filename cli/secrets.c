#include "cli/secrets.h"
#include "cli/arguments.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/sql.h"
#include "common/memory.h"
#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECRET_BYTES = 32, MAX_OWN_SECRET_BYTES = 512 };

bool secrets_keys(struct seal_keys *keys, struct error *ret_error) {
    return seal_keys_init(keys, getenv("ROWBELL_SECRET_KEY"), ret_error);
}

// ---- new ones

static void add_base64(struct buffer *buffer, const char *prefix, const unsigned char bytes[SECRET_BYTES]) {
    char base64[SECRET_BYTES / 3 * 4 + 5];
    EVP_EncodeBlock((unsigned char *)base64, bytes, SECRET_BYTES);
    buffer_text(buffer, prefix);
    buffer_text(buffer, base64);
    OPENSSL_cleanse(base64, sizeof(base64));
}

static void make_hmac(struct buffer *text) {
    unsigned char bytes[SECRET_BYTES];
    int done = RAND_bytes(bytes, sizeof(bytes));
    assert(done == 1);
    add_base64(text, "whsec_", bytes);
    OPENSSL_cleanse(bytes, sizeof(bytes));
}

static void make_ed25519(struct buffer *private_text, struct buffer *public_text) {
    unsigned char seed[SECRET_BYTES], public_key[SECRET_BYTES];
    size_t length = sizeof(public_key);
    int done = RAND_bytes(seed, sizeof(seed));
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, sizeof(seed));
    assert(done == 1 && key != NULL);
    done = EVP_PKEY_get_raw_public_key(key, public_key, &length);
    assert(done == 1);
    EVP_PKEY_free(key);
    add_base64(private_text, "whsk_", seed);
    add_base64(public_text, "whpk_", public_key);
    OPENSSL_cleanse(seed, sizeof(seed));
}

// The first line of a file, or of standard input for "-".
static bool read_secret_file(const char *path, struct buffer *text, struct error *ret_error) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (file == NULL)
        return error_set(ret_error, ERROR_IO, "--secret-file %s: %m", path);
    char line[MAX_OWN_SECRET_BYTES + 2];
    bool ok = fgets(line, sizeof(line), file) != NULL;
    if (file != stdin)
        fclose(file);
    size_t length = ok ? strcspn(line, "\r\n") : 0;
    if (length == 0 || length > MAX_OWN_SECRET_BYTES)
        ok = error_set(ret_error, ERROR_USAGE, "--secret-file %s: its first line must be a secret of at most %d bytes",
                       path, MAX_OWN_SECRET_BYTES);
    else
        buffer_append(text, line, length);
    OPENSSL_cleanse(line, sizeof(line));
    return ok;
}

void secret_wipe(struct buffer *buffer) {
    if (buffer->bytes != NULL)
        OPENSSL_cleanse(buffer->bytes, buffer->length);
    buffer_free(buffer);
}

bool new_secret_make(struct cli *cli, const struct seal_keys *keys, struct new_secret *secret,
                     struct error *ret_error) {
    *secret = (struct new_secret){0};
    struct buffer *text = &secret->text;
    const char *path = option_value(cli, "secret-file");
    bool ed25519 = option_given(cli, "ed25519");
    if (path != NULL && ed25519)
        return error_set(ret_error, ERROR_USAGE, "--secret-file and --ed25519 exclude each other");
    if (path != NULL && !read_secret_file(path, text, ret_error))
        return false;
    if (ed25519) {
        make_ed25519(text, &secret->shown);
        secret->is_public = true;
    } else if (path == NULL && keys->count > 0) {
        make_hmac(text);
        buffer_append(&secret->shown, text->bytes, text->length);
    }
    return true;
}

void new_secret_plain(const struct new_secret *secret, struct buffer *ret_form) {
    if (secret->text.length == 0)
        return;
    buffer_text(ret_form, "plain:");
    buffer_append(ret_form, secret->text.bytes, secret->text.length);
}

void new_secret_wipe(struct new_secret *secret) {
    secret_wipe(&secret->text);
    secret_wipe(&secret->shown);
}

void new_secret_print(const struct new_secret *secret, const char *from_database, json_object *json) {
    const char *shown = secret->shown.length > 0 ? secret->shown.bytes : from_database;
    if (json != NULL) {
        json_object *value = *shown != 0 ? json_object_new_string(shown) : NULL;
        json_object_object_add(json, "secret", secret->is_public ? NULL : value);
        json_object_object_add(json, "public_key", secret->is_public ? value : NULL);
    } else if (secret->is_public) {
        printf("public key  %s\n", shown);
        puts("It verifies the signatures (v1a), and may be known to everybody.");
    } else if (*shown != 0) {
        printf("secret  %s\n", shown);
        puts("Keep the secret now: it verifies the signatures, and it is not shown again.");
    }
}

// ---- sealed for a subscription

bool secret_place_read(struct cli *cli, const char *name, struct secret_place *ret_place, struct error *ret_error) {
    PGresult *row;
    if (!cli_query(cli, &sql_subscription_seal, 1, &name, &row, ret_error))
        return false;
    bool found = PQntuples(row) > 0;
    if (found) {
        snprintf(ret_place->seal_id, sizeof(ret_place->seal_id), "%s", PQgetvalue(row, 0, 0));
        ret_place->is_index = strcmp(PQgetvalue(row, 0, 1), "index") == 0;
    }
    PQclear(row);
    if (!found)
        error_set(ret_error, ERROR_SQL, "there is no subscription %s: see rowbell subscription list", name);
    return found;
}

struct seal_place secret_place_main(const struct secret_place *place) {
    return (struct seal_place){place->seal_id, place->is_index ? SEAL_AUTHORIZATION : SEAL_SIGNING};
}

bool secret_store_sealed(struct cli *cli, const struct seal_keys *keys, const char *name, const char *text,
                         struct error *ret_error) {
    struct secret_place place;
    if (!secret_place_read(cli, name, &place, ret_error))
        return false;
    struct buffer form = {0};
    seal_text(keys, secret_place_main(&place), text, &form);
    const char *values[] = {name, "0", form.bytes};
    bool ok = cli_query(cli, &sql_subscription_rotate_secret, 3, values, NULL, ret_error);
    buffer_free(&form);
    return ok;
}

// ---- secrets rekey

// A stored secret, sealed under the first key; its end, if it has one, is kept. *ret_changed: it was not so before.
static bool reseal(const struct seal_keys *keys, struct seal_place place, const char *stored, struct buffer *ret_stored,
                   bool *ret_changed, struct error *ret_error) {
    int64_t end_s;
    const char *form = seal_split(stored, &end_s);
    buffer_append(ret_stored, stored, (size_t)(form - stored));
    if (seal_is_current(keys, form)) {
        buffer_text(ret_stored, form);
        return true;
    }
    struct buffer text = {0};
    bool ok = seal_open(keys, place, form, &text, ret_error);
    if (ok)
        seal_text(keys, place, buffer_cstr(&text), ret_stored);
    secret_wipe(&text);
    *ret_changed |= ok;
    return ok;
}

struct rekeying {
    struct seal_keys keys;
    bool dry_run;
    int64_t sealed, current; // subscriptions
};

static bool reseal_array(const struct seal_keys *keys, struct seal_place place, json_object *secrets,
                         json_object *ret_after, bool *ret_changed, struct error *ret_error) {
    for (size_t i = 0; i < json_object_array_length(secrets); i++) {
        struct buffer after = {0};
        bool ok = reseal(keys, place, json_object_get_string(json_object_array_get_idx(secrets, i)), &after,
                         ret_changed, ret_error);
        if (ok)
            json_object_array_add(ret_after, json_object_new_string(buffer_cstr(&after)));
        buffer_free(&after);
        if (!ok)
            return false;
    }
    return true;
}

// One subscription, in a transaction of its own. A row that changed meanwhile is left to the next look.
static bool rekey_one(struct cli *cli, struct rekeying *rekeying, const PGresult *rows, int row,
                      struct error *ret_error) {
    const char *id = PQgetvalue(rows, row, 0), *name = PQgetvalue(rows, row, 1);
    const char *secrets_text = PQgetvalue(rows, row, 2);
    const char *client_key = PQgetisnull(rows, row, 3) ? NULL : PQgetvalue(rows, row, 3);
    json_object *secrets = json_tokener_parse(secrets_text), *after = json_object_new_array();
    struct secret_place place = {.is_index = strcmp(PQgetvalue(rows, row, 5), "index") == 0};
    snprintf(place.seal_id, sizeof(place.seal_id), "%s", PQgetvalue(rows, row, 4));
    struct buffer key_after = {0};
    bool changed = false;
    bool ok = reseal_array(&rekeying->keys, secret_place_main(&place), secrets, after, &changed, ret_error) &&
              (client_key == NULL || reseal(&rekeying->keys, (struct seal_place){place.seal_id, SEAL_CLIENT_KEY},
                                            client_key, &key_after, &changed, ret_error));
    if (!ok)
        error_wrap(ret_error, "subscription %s", name);
    rekeying->current += ok && !changed;
    rekeying->sealed += ok && changed;
    if (ok && changed && !rekeying->dry_run) {
        const char *values[] = {id, secrets_text, json_object_to_json_string_ext(after, JSON_C_TO_STRING_NOSLASHESCAPE),
                                client_key, client_key != NULL ? key_after.bytes : NULL};
        PGresult *result = NULL;
        ok = cli_query(cli, &sql_secrets_store, 5, values, &result, ret_error);
        if (ok && atoi(PQgetvalue(result, 0, 0)) == 0)
            ok = error_set(ret_error, ERROR_SQL, "subscription %s was changed meanwhile: run it again", name);
        PQclear(result);
    }
    json_object_put(secrets);
    json_object_put(after);
    buffer_free(&key_after);
    return ok;
}

bool run_secrets_rekey(struct cli *cli, struct error *ret_error) {
    struct rekeying rekeying = {.dry_run = option_given(cli, "dry-run")};
    if (!secrets_keys(&rekeying.keys, ret_error))
        return false;
    PGresult *rows = NULL;
    bool ok = rekeying.keys.count > 0 ||
              error_set(ret_error, ERROR_USAGE,
                        "ROWBELL_SECRET_KEY is not set: give the new key, then the old ones, with commas between");
    ok = ok && cli_connect(cli, CONNECT_FOR_WORK, ret_error) &&
         cli_query(cli, &sql_secrets_list, 0, NULL, &rows, ret_error);
    for (int row = 0; ok && row < PQntuples(rows); row++)
        ok = rekey_one(cli, &rekeying, rows, row, ret_error);
    PQclear(rows);
    if (ok && cli->json) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "sealed", json_object_new_int64(rekeying.sealed));
        json_object_object_add(json, "unchanged", json_object_new_int64(rekeying.current));
        json_object_object_add(json, "key", json_object_new_string(rekeying.keys.keys[0].id));
        json_object_object_add(json, "dry_run", json_object_new_boolean(rekeying.dry_run));
        output_json(json);
    } else if (ok) {
        printf("secrets of %lld subscriptions %s under key %s; those of %lld were already\n",
               (long long)rekeying.sealed, rekeying.dry_run ? "would be sealed" : "sealed", rekeying.keys.keys[0].id,
               (long long)rekeying.current);
    }
    seal_keys_close(&rekeying.keys);
    return ok;
}
