#include "common/db_conn.h"
