#include "common/http_request.h"
