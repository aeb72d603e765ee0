#include "common/http_server.h"
