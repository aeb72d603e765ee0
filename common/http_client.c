#include "common/http_client.h"
