#include "common/plain_text.h"
#include <stdbool.h>
#include <string.h>

// Length of the UTF-8 character at `text`, 0 if there is none (Unicode 15, table 3-7).
static size_t utf8_length(const unsigned char *text, size_t left) {
    size_t length = text[0] < 0x80                      ? 1
                    : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
                    : (text[0] & 0xf0) == 0xe0          ? 3
                    : text[0] >= 0xf0 && text[0] < 0xf5 ? 4
                                                        : 0;
    if (length == 0 || length > left)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    bool out_of_range = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
                        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f);
    return out_of_range ? 0 : length;
}

void plain_text_make(char *bytes, size_t length) {
    for (size_t at = 0; at < length;) {
        unsigned char *byte = (unsigned char *)bytes + at;
        size_t step = utf8_length(byte, length - at);
        bool control = step == 1 && (*byte < ' ' || *byte == 0x7f) && !strchr("\t\r\n", *byte);
        if (step == 0 || control || *byte == '\0') {
            *byte = '?';
            step = 1;
        }
        at += step;
    }
    bytes[length] = '\0';
}
