// A text as a stored secret, as keys, and as what is sealed: only what was sealed for a place opens there.
#include "common/seal.h"
#include "tests/fuzz/fuzz.h"

static const struct seal_place place = {"3f0c", SEAL_SIGNING};

static void check_round(const struct seal_keys *keys, const char *text, size_t length, uint32_t flip) {
    struct buffer form = {0}, opened = {0};
    struct error error = {0};
    if (strlen(text) != length || length > SEAL_TEXT_MAX_BYTES)
        return;
    seal_text(keys, place, text, &form);
    require(seal_is_current(keys, form.bytes));
    require(seal_open(keys, place, form.bytes, &opened, &error) && strcmp(buffer_cstr(&opened), text) == 0);
    buffer_clear(&opened);
    require(!seal_open(keys, (struct seal_place){place.id, SEAL_CLIENT_KEY}, form.bytes, &opened, &error));
    // Any change of it, but one that leaves a plain text.
    form.bytes[flip % form.length] ^= (char)(1 + (flip >> 24) % 127);
    if (strncmp(form.bytes, "plain:", 6) != 0)
        require(!seal_open(keys, place, form.bytes, &opened, &error));
    buffer_free(&form);
    buffer_free(&opened);
}

FUZZ_TARGET(seal) {
    struct seal_keys keys, others;
    struct error error = {0};
    struct buffer opened = {0};
    uint32_t flip = 0;
    memcpy(&flip, bytes, length < sizeof flip ? length : sizeof flip);
    char *text = input_text(bytes, length);
    require(seal_keys_init(&keys, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", &error) && keys.count == 1);
    int64_t end_s;
    const char *form = seal_split(text, &end_s);
    require(form >= text && form <= text + strlen(text));
    if (seal_open(&keys, place, form, &opened, &error))
        require(strncmp(form, "plain:", 6) == 0 && strcmp(buffer_cstr(&opened), form + 6) == 0);
    else
        require(error.code == ERROR_USAGE || error.code == ERROR_KEY);
    if (seal_keys_init(&others, text, &error))
        require(others.count >= 0 && others.count <= SEAL_KEYS_MAX);
    else
        require(error.code == ERROR_USAGE && (strlen(text) < 24 || strstr(error.text, text) == NULL));
    seal_keys_close(&others);
    check_round(&keys, text, length, flip);
    seal_keys_close(&keys);
    buffer_free(&opened);
    free(text);
    return 0;
}
