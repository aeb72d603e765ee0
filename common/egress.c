#include "common/egress.h"
