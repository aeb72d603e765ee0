// stream_keys: the keys of messages on Redis, as this test's database has them.
#pragma once
#include "common/stream_message.h"
#include "tests/support/fixture.h"

static inline struct stream_keys stream_keys_read(PGconn *conn) {
    struct stream_keys keys = {0};
    stream_keys_add(&keys, sql_text(conn, "select max(id) from rowbell.stream_keys"),
                    sql_text(conn, "select encode(key, 'hex') from rowbell.stream_keys order by id desc limit 1"));
    return keys;
}
