#include "common/metrics.h"
