#include "common/redis_conn.h"
