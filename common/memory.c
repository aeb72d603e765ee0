#include "common/memory.h"
