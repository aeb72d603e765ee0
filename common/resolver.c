#include "common/resolver.h"
