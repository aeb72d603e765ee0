#!/usr/bin/env bash
# guest.sh BUILD_DIRECTORY [--any-speed]: Rowbell comes to the database of an application that is at work, does its work there, and
# goes: it installs, publishes, delivers, is upgraded, is dumped and restored, and is removed. Everything goes through PgBouncer in
# transaction mode, to Debian's PostgreSQL with its own settings, as a login that owns the database and is nothing more: once with
# roles that an administrator made before, once with --no-roles. The application (application.c) logs in as that owner, and as a login
# that may only read and write. No statement of it may fail, wait for a lock for longer than 1 s, or take longer than 1 s
# (--any-speed: however long it takes; for a machine under load). Prints what was counted; exit status 1: something was in the way.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../dev/lib.sh"
build_directory=$1
any_speed=${2:-}
clients=4

run=$(mktemp -d /tmp/rowbell-guest.XXXXXX)
chmod 755 "$run" # pgbouncer runs as postgres
pids=()
finish() {
    local status=$?
    trap '' INT TERM
    [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait
    pg_stop "$run" immediate
    pg_remove "$run"
    rm -rf "$run"
    exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

started() { pids+=("$!"); }
# ended PID: stops it, and waits. Its status is of no interest here.
ended() {
    kill "$1" 2>/dev/null || true
    wait "$1" || true
    local pid left=()
    for pid in "${pids[@]}"; do [ "$pid" = "$1" ] || left+=("$pid"); done
    pids=("${left[@]}")
}

pg_make "$run"
pg_start "$run"
pooler_port=$(free_port)
cat >"$run/pgbouncer.ini" <<INI
[databases]
* = host=127.0.0.1 port=$pg_port
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $pooler_port
auth_type = plain
auth_file = $run/users
pool_mode = transaction
default_pool_size = 6
max_client_conn = 200
unix_socket_dir =
ignore_startup_parameters = extra_float_digits
INI
printf '"owner" "x"\n"writer" "x"\n' >"$run/users"
if [ "$(id -u)" -eq 0 ]; then
    setpriv --reuid=postgres --regid=postgres --clear-groups --pdeathsig=KILL pgbouncer "$run/pgbouncer.ini" >"$run/pgbouncer.log" 2>&1 &
else
    pgbouncer "$run/pgbouncer.ini" >"$run/pgbouncer.log" 2>&1 &
fi
started

pg_psql -c "create role owner login password 'x'" -c "create role writer login password 'x'" \
    -c "alter role owner set lock_timeout = '1s'" -c "alter role writer set lock_timeout = '1s'"

step() { printf '  %6d ms  %s\n' $((($(date +%s%N) - began) / 1000000)) "$*"; }
# must COMMAND...: its output only when it fails.
must() {
    if ! "$@" >"$run/out" 2>&1; then
        cat "$run/out"
        say "failed: $*"
        exit 1
    fi
}
# sql COMMAND: as the owner, by way of the pooler.
sql() { psql -qXAt -v ON_ERROR_STOP=1 "$DATABASE_URL" -c "$1"; }
rowbell() { "$build_directory/cli/rowbell" "$@"; }
# until_true SQL: within a minute.
until_true() {
    local try
    for try in $(seq 600); do
        [ "$(sql "$1")" != t ] || return 0
        sleep 0.1
    done
    say "not so after a minute: $1"
    exit 1
}

# story NAME [MIGRATE ARGUMENT...]
story() {
    local name=$1 application writer programs=() program
    shift
    echo "$name"
    began=$(date +%s%N)
    pg_psql -c "create database $name owner owner"
    export DATABASE_URL=postgres://owner:x@127.0.0.1:$pooler_port/$name
    local direct=postgres://owner:x@127.0.0.1:$pg_port
    until psql -qXAt "$DATABASE_URL" -c 'select 1' >/dev/null 2>&1; do
        kill -0 "${pids[0]}" || { cat "$run/pgbouncer.log" && exit 1; }
        sleep 0.05
    done
    sql "create table posts (id bigint generated always as identity primary key, tenant text, title text, seen int default 0,
           deleted_at timestamptz);
         create index on posts (tenant);
         create table comments (id bigserial primary key, post_id bigint not null references posts on delete cascade, body text);
         create index on comments (post_id);
         create table orders (id int, placed date, total int, primary key (id, placed)) partition by range (placed);
         create table orders_1 partition of orders for values from ('2026-01-01') to ('2026-02-01');
         create table orders_2 partition of orders for values from ('2026-02-01') to ('2026-04-01');
         insert into posts (tenant, title) select 't' || i % 10, 'title' from generate_series(1, 1000) i;
         grant select, insert, update, delete on all tables in schema public to writer;
         grant usage on all sequences in schema public to writer"
    "$build_directory/tests/guest-application" "$DATABASE_URL" $clients >"$run/owner.txt" 2>"$run/owner.err" &
    application=$!
    started
    "$build_directory/tests/guest-application" "${DATABASE_URL/owner:/writer:}" $clients >"$run/writer.txt" 2>"$run/writer.err" &
    writer=$!
    started

    must rowbell migrate "$@"
    step installed
    must rowbell publish posts --scope tenant
    must rowbell publish comments
    must rowbell publish orders
    step 'published posts, comments and orders'
    for program in relay dispatcher; do
        "$build_directory/$program/rowbell-$program" --direct-database-url "$direct/$name" --admin-listen 127.0.0.1:0 >"$run/$program.log" 2>&1 &
        programs+=("$!")
        started
    done
    until_true 'select count(*) > 100 from rowbell.stream_log'
    step "delivered $(sql 'select count(*) from rowbell.stream_log') entries to the stream"
    must rowbell publish posts --scope tenant
    must rowbell publish posts --scope tenant --soft-delete deleted_at --watch title,deleted_at
    must rowbell unpublish comments
    must rowbell publish comments --no-webhook
    step 'published again: the same, with other options, after unpublish'
    must sql "alter table posts add column extra int"
    must sql "alter table posts add constraint titled check (title is not null) not valid"
    must sql "alter table posts validate constraint titled"
    must sql "create table orders_3 partition of orders for values from ('2026-04-01') to ('2026-05-01')"
    must rowbell publish orders
    step 'the application migrated, and orders has a partition more'
    must rowbell status
    rowbell doctor >"$run/out" 2>&1 || [ $? -eq 5 ] || must rowbell doctor
    sql "update rowbell.migrations set checksum = 'of an older release' where name like 'functions/%'"
    must rowbell migrate "$@"
    step upgraded

    must pg_dump --format=custom --file "$run/$name.dump" "$direct/$name"
    pg_psql -c "create database ${name}_copy owner owner"
    must pg_restore --exit-on-error --no-comments --dbname "$direct/${name}_copy" "$run/$name.dump"
    must rowbell migrate --database-url "$direct/${name}_copy" "$@"
    must rowbell publish posts --scope tenant --database-url "$direct/${name}_copy"
    local before
    before=$(psql -qXAt "$direct/${name}_copy" -c 'select max(seq) from rowbell.events')
    must psql -qX -v ON_ERROR_STOP=1 "$direct/${name}_copy" -c "insert into posts (tenant, title) values ('t1', 'restored')"
    [ "$(psql -qXAt "$direct/${name}_copy" -c "select count(*) from rowbell.events where seq > $before")" = 1 ] ||
        { say 'a change in the restored database is not captured' && exit 1; }
    step 'dumped, and restored into another database'

    for program in "${programs[@]}"; do ended "$program"; done
    for program in posts comments orders; do must rowbell unpublish "$program"; done
    must sql 'drop schema rowbell cascade'
    [ "$(sql "select count(*) from pg_trigger where tgname like '%rowbell%'")" = 0 ] || { say 'a trigger is left' && exit 1; }
    step removed
    sleep 0.5 # the application goes on without us
    ended $application
    ended $writer
    judge owner
    judge writer
}

# judge LOGIN: what its clients saw.
judge() {
    local counted failed slowest_ms
    counted=$(cat "$run/$1.txt")
    echo "  $1: $counted"
    sort "$run/$1.err" | uniq -c | head -20
    failed=$(sed -n 's/.* failed=\([0-9]*\) .*/\1/p' <<<"$counted")
    slowest_ms=$(sed -n 's/.* slowest_ms=\([0-9]*\) .*/\1/p' <<<"$counted")
    checks=$((checks + 1))
    if [ "${failed:-1}" -ne 0 ] || { [ -z "$any_speed" ] && [ "${slowest_ms:-9999}" -gt 1000 ]; }; then
        failures=$((failures + 1))
    fi
}

checks=0 failures=0
story without_roles --no-roles
pg_psql <"$root/migrations/roles.sql"
pg_psql -c 'grant rowbell_owner to owner'
story with_roles
echo "$((100 * (checks - failures) / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
[ $failures -eq 0 ]
