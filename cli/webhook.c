// webhook: endpoints with everything that can be set: add, set, rotate-secret.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/parameters.h"
#include "cli/secrets.h"
#include "cli/sql.h"
#include "common/config.h"
#include "common/http_client.h"
#include "common/memory.h"
#include "common/pem.h"
#include "common/status_policy.h"
#include "common/webhook_header.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PEM_BYTES = 65536 };

struct reading {
    json_object *json; // what the values are collected in
    struct error *error;
};

static bool read_text(void *arg, const char *value) {
    struct reading *reading = arg;
    json_object_array_add(reading->json, json_object_new_string(value));
    return true;
}

static bool read_retry(void *arg, const char *value) {
    struct reading *reading = arg;
    long delay_ms;
    // A first attempt is made at once in any case; "0s" as first delay is allowed and means: again at once.
    if (!config_parse_duration_ms(value, &delay_ms, NULL))
        return error_set(reading->error, ERROR_USAGE, "--retry %s: expected delays such as 1s,5s,5m", value);
    json_object_array_add(reading->json, json_object_new_int64(delay_ms));
    return true;
}

static bool read_header(void *arg, const char *text) {
    struct reading *reading = arg;
    const char *colon = strchr(text, ':');
    char name[WEBHOOK_HEADER_MAX_BYTES];
    if (colon == NULL || (size_t)(colon - text) >= sizeof(name))
        return error_set(reading->error, ERROR_USAGE, "--header %.60s: expected 'name: value'", text);
    snprintf(name, sizeof(name), "%.*s", (int)(colon - text), text);
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    if (!webhook_header_check(name, value, strlen(value), reading->error))
        return error_wrap(reading->error, "--header");
    json_object_object_add(reading->json, name, json_object_new_string(value));
    if (json_object_object_length(reading->json) > WEBHOOK_HEADERS_MAX)
        return error_set(reading->error, ERROR_USAGE, "--header: at most %d", WEBHOOK_HEADERS_MAX);
    return true;
}

static bool read_status(void *arg, const char *text) {
    struct reading *reading = arg;
    const char *equals = strchr(text, '=');
    char key[8];
    snprintf(key, sizeof(key), "%.*s", equals != NULL ? (int)(equals - text) : 7, text);
    json_object_object_add(reading->json, key, json_object_new_string(equals != NULL ? equals + 1 : ""));
    struct status_policy policy;
    return status_policy_read(&policy, reading->json, NULL) ||
           error_set(reading->error, ERROR_USAGE,
                     "--status %.60s: expected a status (404) or a class (4xx), then =delivered, =retry, =reject or "
                     "=disable",
                     text);
}

// "10", "10/s", "30/m", "100/h": a second.
static bool read_rate(const char *flag, const char *text, json_object **ret_rate, struct error *ret_error) {
    char *end;
    double rate = strtod(text, &end);
    double seconds = *end == 0 || strcmp(end, "/s") == 0 ? 1
                     : strcmp(end, "/m") == 0            ? 60
                     : strcmp(end, "/h") == 0            ? 3600
                                                         : 0;
    if (end == text || seconds == 0 || !(rate / seconds >= 0.0001 && rate / seconds <= 100000))
        return error_set(ret_error, ERROR_USAGE, "--%s %s: expected how many a second (10), or 30/m, or 100/h", flag,
                         text);
    char decimal[40];
    snprintf(decimal, sizeof(decimal), "%.9g", rate / seconds);
    *ret_rate = json_object_new_double_s(rate / seconds, decimal);
    return true;
}

static bool read_pem(const char *flag, const char *path, char **ret_text, struct error *ret_error) {
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return error_set(ret_error, ERROR_IO, "--%s %s: %m", flag, path);
    *ret_text = memory_alloc(MAX_PEM_BYTES + 1);
    size_t length = fread(*ret_text, 1, MAX_PEM_BYTES + 1, file);
    bool whole = !ferror(file) && length <= MAX_PEM_BYTES && strlen(*ret_text) == length;
    fclose(file);
    return whole ||
           error_set(ret_error, ERROR_USAGE, "--%s %s: not a text of at most %d bytes", flag, path, MAX_PEM_BYTES);
}

// Certificates, and the client's key, which leaves this process sealed, and so apart from the options.
static bool read_tls(struct cli *cli, const struct seal_keys *keys, json_object *options, struct buffer *ret_client_key,
                     struct error *ret_error) {
    const char *ca_path = option_value(cli, "ca"), *certificate_path = option_value(cli, "client-certificate"),
               *key_path = option_value(cli, "client-key");
    char *ca = NULL, *certificate = NULL, *key = NULL;
    bool ok = true;
    if (ca_path != NULL)
        ok = read_pem("ca", ca_path, &ca, ret_error) && pem_certificates_check(ca, "--ca", ret_error);
    if (ok && ca != NULL)
        json_object_object_add(options, "ca", json_object_new_string(ca));
    if (ok && (certificate_path != NULL) != (key_path != NULL))
        ok = error_set(ret_error, ERROR_USAGE, "--client-certificate and --client-key need each other");
    if (ok && key_path != NULL && keys->count == 0)
        ok = error_set(ret_error, ERROR_USAGE,
                       "--client-key: it is stored sealed only: set ROWBELL_SECRET_KEY, here and for the dispatchers");
    if (ok && key_path != NULL)
        ok = read_pem("client-certificate", certificate_path, &certificate, ret_error) &&
             read_pem("client-key", key_path, &key, ret_error) && pem_pair_check(certificate, key, ret_error);
    if (ok && key != NULL && strlen(key) > SEAL_TEXT_MAX_BYTES)
        ok = error_set(ret_error, ERROR_USAGE, "--client-key %s: more than %d bytes", key_path, SEAL_TEXT_MAX_BYTES);
    if (ok && key != NULL) {
        buffer_text(ret_client_key, key);
        json_object_object_add(options, "client_certificate", json_object_new_string(certificate));
    }
    if (key != NULL)
        explicit_bzero(key, MAX_PEM_BYTES);
    free(ca);
    free(certificate);
    free(key);
    return ok;
}

// Flags whose values are collected.
static const struct collected {
    const char *flag, *key;
    char separator;
    bool is_object;
    bool (*read)(void *arg, const char *value);
} collected[] = {
    {"retry", "retry", ',', false, read_retry},
    {"header", "headers", 0, true, read_header},
    {"status", "statuses", ',', true, read_status},
};

static const char *const signatures[] = {"standard", "timestamp", "body", NULL};

// The options of rowbell.add_webhook and set_webhook that were given, but the secret.
static bool read_options(struct cli *cli, const struct seal_keys *keys, json_object *options,
                         struct buffer *ret_client_key, struct error *ret_error) {
    for (size_t i = 0; i < sizeof(collected) / sizeof(*collected); i++) {
        if (!option_given(cli, collected[i].flag))
            continue;
        struct reading reading = {.json = collected[i].is_object ? json_object_new_object() : json_object_new_array(),
                                  .error = ret_error};
        json_object_object_add(options, collected[i].key, reading.json);
        if (!option_each(cli, collected[i].flag, collected[i].separator, collected[i].read, &reading))
            return false;
    }
    if (option_given(cli, "allow-http"))
        json_object_object_add(options, "allow_http", json_object_new_boolean(true));
    if (option_given(cli, "ordered"))
        json_object_object_add(options, "ordered", json_object_new_boolean(true));
    const char *deadline = option_value(cli, "deadline");
    long deadline_ms;
    if (deadline != NULL) {
        if (!config_parse_duration_ms(deadline, &deadline_ms, NULL) || deadline_ms < 100 || deadline_ms > 20000)
            return error_set(ret_error, ERROR_USAGE, "--deadline %s: expected a duration from 100ms to 20s", deadline);
        json_object_object_add(options, "deadline_ms", json_object_new_int64(deadline_ms));
    }
    int64_t max_in_flight = 0;
    if (!option_integer(cli, "max-in-flight", 1, 64, &max_in_flight, ret_error))
        return false;
    if (max_in_flight > 0)
        json_object_object_add(options, "max_in_flight", json_object_new_int64(max_in_flight));
    json_object *rate = NULL;
    if (option_given(cli, "rate") && !read_rate("rate", option_value(cli, "rate"), &rate, ret_error))
        return false;
    if (rate != NULL)
        json_object_object_add(options, "rate", rate);
    if (!option_choice(cli, "signature", signatures, ret_error))
        return false;
    if (option_given(cli, "signature"))
        json_object_object_add(options, "signature", json_object_new_string(option_value(cli, "signature")));
    if (option_given(cli, "condition"))
        json_object_object_add(options, "condition", json_object_new_string(option_value(cli, "condition")));
    return read_tls(cli, keys, options, ret_client_key, ret_error);
}

static const char *text_of(json_object *json) {
    return json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
}

// invalid_parameter_value: what was typed is wrong, not what is stored.
static bool as_usage(struct error *error) {
    if (strcmp(error->sqlstate, "22023") == 0)
        error->code = ERROR_USAGE;
    return false;
}

static bool check_url(struct cli *cli, const char *url, struct error *ret_error) {
    struct error refused = {0};
    return http_url_check(url, option_given(cli, "allow-http"), &refused) ||
           error_set(ret_error, refused.code, "%s: expected https://host/path, or http://host/path with --allow-http",
                     refused.text);
}

static void print_added(const PGresult *added, const struct new_secret *secret, bool as_json) {
    json_object *json = as_json ? output_json_row(added, 0) : NULL;
    if (!as_json)
        printf("subscription %s was added\n", PQgetvalue(added, 0, 1));
    // With a secret of our own, the one that the database made is gone already.
    new_secret_print(secret, secret->text.length > 0 ? "" : PQgetvalue(added, 0, 2), json);
    if (as_json)
        output_json(json);
}

// Seals the client's key for this webhook, which is there, beside the certificate in `changes`.
static bool seal_client_key(struct cli *cli, const struct seal_keys *keys, const struct buffer *client_key,
                            json_object *changes, struct error *ret_error) {
    struct secret_place place;
    if (!secret_place_read(cli, cli->arguments[0], &place, ret_error))
        return false;
    struct buffer sealed = {0};
    seal_text(keys, (struct seal_place){place.seal_id, SEAL_CLIENT_KEY}, client_key->bytes, &sealed);
    json_object_object_add(changes, "client_key", json_object_new_string(sealed.bytes));
    buffer_free(&sealed);
    return true;
}

// What is sealed is sealed for a webhook that is there: it comes in the same transaction as the webhook, after it.
static bool store_sealed(struct cli *cli, const struct seal_keys *keys, const struct new_secret *secret,
                         json_object *certificate, const struct buffer *client_key, struct error *ret_error) {
    if (keys->count > 0 && secret->text.length > 0 &&
        !secret_store_sealed(cli, keys, cli->arguments[0], secret->text.bytes, ret_error))
        return false;
    if (client_key->length == 0)
        return true;
    json_object *changes = json_object_new_object();
    json_object_object_add(changes, "client_certificate", json_object_get(certificate));
    bool ok = seal_client_key(cli, keys, client_key, changes, ret_error);
    const char *values[] = {cli->arguments[0], text_of(changes)};
    ok = ok && cli_query(cli, &sql_subscription_set_webhook, 2, values, NULL, ret_error);
    json_object_put(changes);
    return ok;
}

bool run_subscription_add_webhook(struct cli *cli, struct error *ret_error) {
    const char *url = cli->arguments[1];
    if (!option_given(cli, "type"))
        return error_set(ret_error, ERROR_USAGE,
                         "--type is missing: give at least one pattern such as posts.update, 'posts.*' or '*'");
    struct seal_keys keys;
    if (!check_url(cli, url, ret_error) || !secrets_keys(&keys, ret_error))
        return false;
    json_object *options = json_object_new_object();
    struct new_secret secret = {0};
    struct buffer types = {0}, client_key = {0}, form = {0};
    PGresult *added = NULL;
    json_object *certificate = NULL;
    bool ok = read_options(cli, &keys, options, &client_key, ret_error) &&
              new_secret_make(cli, &keys, &secret, ret_error) && cli_connect(cli, CONNECT_FOR_WORK, ret_error) &&
              cli_script(cli, "begin", ret_error);
    if (json_object_object_get_ex(options, "client_certificate", &certificate)) {
        json_object_get(certificate);
        json_object_object_del(options, "client_certificate");
    }
    if (keys.count == 0)
        new_secret_plain(&secret, &form);
    if (ok && form.length > 0)
        json_object_object_add(options, "secret", json_object_new_string(form.bytes));
    if (ok) {
        const char *values[] = {cli->arguments[0], url, parameter_array(cli, "type", 0, &types),
                                option_value(cli, "scope"), text_of(options)};
        ok = cli_query(cli, &sql_subscription_add_webhook, 5, values, &added, ret_error) || as_usage(ret_error);
    }
    ok = ok && (store_sealed(cli, &keys, &secret, certificate, &client_key, ret_error) || as_usage(ret_error)) &&
         cli_script(cli, "commit", ret_error);
    if (ok)
        print_added(added, &secret, cli->json);
    PQclear(added);
    buffer_free(&types);
    secret_wipe(&client_key);
    secret_wipe(&form);
    json_object_put(certificate);
    new_secret_wipe(&secret);
    seal_keys_close(&keys);
    json_object_put(options);
    return ok;
}

static bool print_changed(struct cli *cli, const PGresult *result, const char *what, struct error *ret_error) {
    if (PQgetvalue(result, 0, 0)[0] != 't')
        return error_set(ret_error, ERROR_SQL, "there is no webhook %s: see rowbell subscription list",
                         cli->arguments[0]);
    if (cli->json) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "name", json_object_new_string(cli->arguments[0]));
        output_json(json);
    } else {
        printf("subscription %s %s\n", cli->arguments[0], what);
    }
    return true;
}

// ---- subscription set

// Flag names as --unset takes them, and the settings that go.
static const struct unsettable {
    const char *name;
    const char *keys[2];
} unsettables[] = {
    {"allow-http", {"allow_http", NULL}},
    {"ca", {"ca", NULL}},
    {"client-certificate", {"client_certificate", "client_key"}},
    {"condition", {"condition", NULL}},
    {"deadline", {"deadline_ms", NULL}},
    {"header", {"headers", NULL}},
    {"max-in-flight", {"max_in_flight", NULL}},
    {"ordered", {"ordered", NULL}},
    {"rate", {"rate", NULL}},
    {"retry", {"retry", NULL}},
    {"scope", {"scope", NULL}},
    {"signature", {"signature", NULL}},
    {"status", {"statuses", NULL}},
};

static bool read_unset(void *arg, const char *name) {
    struct reading *reading = arg;
    for (size_t i = 0; i < sizeof(unsettables) / sizeof(*unsettables); i++) {
        if (strcmp(unsettables[i].name, name) != 0)
            continue;
        if (strcmp(name, "scope") == 0)
            json_object_object_add(reading->json, "all_scopes", json_object_new_boolean(true));
        for (int k = 0; k < 2 && unsettables[i].keys[k] != NULL; k++) {
            if (json_object_object_get_ex(reading->json, unsettables[i].keys[k], NULL))
                return error_set(reading->error, ERROR_USAGE, "--unset %s: it is set by the same command", name);
            json_object_object_add(reading->json, unsettables[i].keys[k], NULL);
        }
        return true;
    }
    return error_set(reading->error, ERROR_USAGE,
                     "--unset %s: give the name of a flag that can be left out, such as rate", name);
}

bool run_subscription_set(struct cli *cli, struct error *ret_error) {
    struct seal_keys keys;
    if (!secrets_keys(&keys, ret_error))
        return false;
    json_object *changes = json_object_new_object();
    struct buffer client_key = {0};
    bool ok = read_options(cli, &keys, changes, &client_key, ret_error);
    if (ok && option_given(cli, "url"))
        json_object_object_add(changes, "url", json_object_new_string(option_value(cli, "url")));
    if (ok && option_given(cli, "scope"))
        json_object_object_add(changes, "scope", json_object_new_string(option_value(cli, "scope")));
    if (ok && option_given(cli, "type")) {
        struct reading types = {.json = json_object_new_array(), .error = ret_error};
        json_object_object_add(changes, "types", types.json);
        ok = option_each(cli, "type", 0, read_text, &types);
    }
    struct reading unset = {.json = changes, .error = ret_error};
    ok = ok && option_each(cli, "unset", ',', read_unset, &unset);
    if (ok && json_object_object_length(changes) == 0)
        ok = error_set(ret_error, ERROR_USAGE, "nothing to set: see rowbell subscription set --help");
    PGresult *result = NULL;
    ok = ok && cli_connect(cli, CONNECT_FOR_WORK, ret_error) &&
         (client_key.length == 0 || seal_client_key(cli, &keys, &client_key, changes, ret_error));
    seal_keys_close(&keys);
    secret_wipe(&client_key);
    const char *values[] = {cli->arguments[0], text_of(changes)};
    ok = ok && (cli_query(cli, &sql_subscription_set_webhook, 2, values, &result, ret_error) || as_usage(ret_error)) &&
         print_changed(cli, result, "was changed", ret_error);
    PQclear(result);
    json_object_put(changes);
    return ok;
}

// ---- subscription rotate-secret

bool run_subscription_rotate_secret(struct cli *cli, struct error *ret_error) {
    long grace_ms = 24L * 60 * 60 * 1000;
    const char *grace = option_value(cli, "grace");
    if (grace != NULL && (!config_parse_duration_ms(grace, &grace_ms, NULL) || grace_ms > 7L * 24 * 60 * 60 * 1000))
        return error_set(ret_error, ERROR_USAGE, "--grace %s: expected a duration from 0s to 7d", grace);
    struct seal_keys keys;
    struct new_secret secret = {0};
    if (!secrets_keys(&keys, ret_error))
        return false;
    struct secret_place place;
    struct buffer form = {0};
    bool ok = new_secret_make(cli, &keys, &secret, ret_error) && cli_connect(cli, CONNECT_FOR_WORK, ret_error) &&
              secret_place_read(cli, cli->arguments[0], &place, ret_error);
    if (ok && place.is_index && option_value(cli, "secret-file") == NULL)
        ok = error_set(ret_error, ERROR_USAGE, "%s is an index: give its new authorization with --secret-file",
                       cli->arguments[0]);
    if (ok && keys.count > 0)
        seal_text(&keys, secret_place_main(&place), secret.text.bytes, &form);
    else
        new_secret_plain(&secret, &form);
    seal_keys_close(&keys);
    char grace_text[24];
    snprintf(grace_text, sizeof(grace_text), "%ld", grace_ms);
    PGresult *result = NULL;
    const char *values[] = {cli->arguments[0], grace_text, form.length > 0 ? form.bytes : NULL};
    ok = ok && (cli_query(cli, &sql_subscription_rotate_secret, 3, values, &result, ret_error) || as_usage(ret_error));
    if (ok && cli->json) {
        json_object *json = output_json_row(result, 0);
        json_object_object_add(json, "name", json_object_new_string(cli->arguments[0]));
        new_secret_print(&secret, PQgetvalue(result, 0, 0), json);
        output_json(json);
    } else if (ok) {
        printf("subscription %s signs with a new secret%s%s\n", cli->arguments[0],
               grace_ms > 0 ? "; the old one signs beside it until " : ", and with the old one no more",
               grace_ms > 0 ? PQgetvalue(result, 0, 1) : "");
        new_secret_print(&secret, PQgetvalue(result, 0, 0), NULL);
    }
    PQclear(result);
    secret_wipe(&form);
    new_secret_wipe(&secret);
    return ok;
}

// ---- subscription resume

bool run_subscription_resume(struct cli *cli, struct error *ret_error) {
    json_object *rate = NULL;
    if (option_given(cli, "rate") && !read_rate("rate", option_value(cli, "rate"), &rate, ret_error))
        return false;
    const char *values[] = {cli->arguments[0], rate != NULL ? json_object_get_string(rate) : NULL};
    PGresult *result = NULL;
    bool ok = cli_connect(cli, CONNECT_FOR_WORK, ret_error) &&
              (cli_query(cli, &sql_subscription_resume, 2, values, &result, ret_error) || as_usage(ret_error));
    if (ok && PQgetvalue(result, 0, 0)[0] != 't')
        ok = error_set(ret_error, ERROR_SQL, "there is no subscription %s: see rowbell subscription list",
                       cli->arguments[0]);
    if (ok && cli->json) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "name", json_object_new_string(cli->arguments[0]));
        json_object_object_add(json, "state", json_object_new_string("active"));
        output_json(json);
    } else if (ok) {
        printf("subscription %s is active\n", cli->arguments[0]);
    }
    PQclear(result);
    json_object_put(rate);
    return ok;
}
