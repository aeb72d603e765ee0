#include "common/backoff.h"
