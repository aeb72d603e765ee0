#include "common/admin_endpoint.h"
