#include "common/stream_message.h"
