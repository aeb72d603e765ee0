// pgbouncer: a real pooler in front of the newest fixture_database. It dies with the test's process.
#pragma once

// pool_mode: "transaction" or "session". All clients, whatever they call themselves, share pool_size server
// connections, as superuser. Returns the database's URL by way of it (owned by the fixture), when it answers.
const char *pgbouncer_start(const char *pool_mode, int pool_size);
