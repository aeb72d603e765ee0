#include "common/db_error.h"
