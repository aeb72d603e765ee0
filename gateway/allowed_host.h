// allowed_host: which Host a request may name where nobody is asked who he is (--auth none). A page of another site
// whose name was pointed at this address (DNS rebinding) is of the same origin to its browser, but it names its own
// host.
#pragma once
#include "gateway/config.h"
#include <stdbool.h>

// host: of the request, "name:port"; NULL: it has none, which no browser does. Allowed are localhost and names below
// it, any IP address, and those of --allow-host.
bool allowed_host(const struct config_list *allowed, const char *host);
