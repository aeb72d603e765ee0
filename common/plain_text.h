// plain_text: bytes of a stranger made into what a database and a terminal can take.
#pragma once
#include <stddef.h>

// In place: valid UTF-8 without control characters (tab and line ends stay); every other byte becomes '?'. The block
// must hold length + 1 bytes; a NUL is put at the end.
void plain_text_make(char *bytes, size_t length);
