#include "common/schema_version.h"
