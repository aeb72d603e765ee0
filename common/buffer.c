#include "common/buffer.h"
