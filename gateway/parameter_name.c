#include "gateway/parameter_name.h"
#include <stddef.h>
#include <string.h>

enum { WORD_BYTES = 32 }; // longer than any of ours; the rest of a name does not matter

struct word {
    char text[WORD_BYTES];
};

static struct word word_of(const char *name) {
    struct word word = {0};
    size_t length = 0;
    for (; *name && length < WORD_BYTES - 1; name++) {
        if (*name >= 'A' && *name <= 'Z')
            word.text[length++] = (char)(*name - 'A' + 'a');
        else if ((*name >= 'a' && *name <= 'z') || (*name >= '0' && *name <= '9'))
            word.text[length++] = *name;
    }
    return word;
}

bool parameter_name_same(const char *name, const char *ours) {
    return strcmp(word_of(name).text, word_of(ours).text) == 0;
}

// One letter more, less or other, or two that changed places.
static bool one_edit_away(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return (*a && strcmp(a + 1, b) == 0) || (*b && strcmp(a, b + 1) == 0) ||
           (*a && *b && (strcmp(a + 1, b + 1) == 0 || (a[0] == b[1] && a[1] == b[0] && strcmp(a + 2, b + 2) == 0)));
}

bool parameter_name_near(const char *name, const char *ours) {
    struct word word = word_of(name);
    size_t length = strlen(word.text);
    if (strcmp(word.text, ours) == 0)
        return true;
    if (strlen(ours) < 4)
        return false;
    if (length > 0 && word.text[length - 1] == 's')
        word.text[length - 1] = '\0';
    return strncmp(word.text, ours, strlen(ours)) == 0 || one_edit_away(word.text, ours);
}
