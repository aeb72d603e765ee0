// Any bytes as certificates, as a pair with a key, and as keys of a gateway.
#include "common/pem.h"
#include "gateway/jwt_keys.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(pem) {
    char *text = input_text(bytes, length);
    char *exact = input_copy(bytes, length);
    struct error error = {0};
    struct jwt_keys keys = {0};
    bool good = pem_certificates_check(text, "ca", &error);
    require(good || error.text[0] != '\0');
    require(good || !pem_pair_check(text, text, &error) || strstr(text, "CERTIFICATE"));
    if (jwt_keys_from_pem(&keys, exact, length, &error)) {
        require(keys.count > 0 && keys.count <= JWT_KEYS_MAX && !keys.named);
        require(strncmp(text, "-----BEGIN PRIVATE KEY-----\n", 28) != 0);
        for (size_t i = 0; i < keys.count; i++)
            require(keys.keys[i].public_key && keys.keys[i].algorithm != JWT_HS256);
    } else {
        require(keys.count == 0 && !keys.keys);
    }
    jwt_keys_free(&keys);
    free(exact);
    free(text);
    return 0;
}
