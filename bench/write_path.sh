#!/usr/bin/env bash
# What capture costs a writer: single-row INSERT transactions and one large INSERT.
# [--seconds N] a run (3; in 1, sixteen sessions that plan the trigger for the first time are seen); [--rounds N] (5).
# Tables: plain (no trigger), captured (published, a relay awake), serialised (published, with an advisory lock held from the
# insert to the commit: the known way to make ids commit in order). Each has a primary key, an index on its tenant and about 100
# bytes a row.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
seconds=3 rounds=5
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2 ;;
    --rounds) rounds=$2 ;;
    *) die "there is no option $1" 2 ;;
    esac
    shift 2
done
bench_start
sql "select rowbell.set_wake('notify')" >/dev/null
for table in plain captured serialised; do
    sql "create table $table (id bigint generated always as identity primary key, tenant int not null, title text not null,
                              body text not null, created_at timestamptz not null default now());
         create index on $table (tenant)"
    echo "insert into $table (tenant, title, body) values (1, 'hello world', 'a row of some hundred bytes, as most tables have them');" \
        >"$run/$table.sql"
done
sql "select rowbell.publish('captured', scope => 'tenant'); select rowbell.publish('serialised', scope => 'tenant');
     create function serialise() returns trigger language plpgsql as \$\$ begin perform pg_advisory_xact_lock(1); return null; end \$\$;
     create trigger \"~a\" after insert on serialised for each statement execute function serialise()" >/dev/null
session "select pg_advisory_lock_shared(x'726f7766'::int, 0)" # what an awake relay holds

printf '%-8s %12s %12s %12s %12s\n' clients plain/s captured/s serialised/s captured/plain
for clients in 1 4 16; do
    : >"$run/ratios" && : >"$run/serial"
    for ((round = 0; round < rounds; round++)); do
        plain=$(tps "$run/plain.sql" $clients "$seconds")
        captured=$(tps "$run/captured.sql" $clients "$seconds")
        serialised=$(tps "$run/serialised.sql" $clients "$seconds")
        divide "$captured" "$plain" >>"$run/ratios"
        divide "$captured" "$serialised" >>"$run/serial"
        printf '%-8s %12.0f %12.0f %12.0f %12s\n' $clients "$plain" "$captured" "$serialised" "$(tail -n 1 "$run/ratios")"
        sql 'truncate rowbell.events, plain, captured, serialised'
    done
    results+=("$(ratio write_path_$clients "$(median <"$run/ratios")")")
    results+=("$(ratio write_vs_serialised_$clients "$(median <"$run/serial")")")
done
session_end

echo
: >"$run/ratios"
timed() { psql -qXAt "$database_url" -c '\timing on' -c "$1" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p'; }
for ((round = 0; round < rounds; round++)); do
    for table in plain captured; do
        took=$(timed "insert into $table (tenant, title, body) select i % 100, 'hello world', 'a row of some hundred bytes, as most
                      tables have them' from generate_series(1, 100000) i")
        [ $table = plain ] && plain=$took || captured=$took
    done
    divide "$captured" "$plain" >>"$run/ratios"
    printf '100,000 rows: plain %.0f ms, captured %.0f ms, %s\n' "$plain" "$captured" "$(tail -n 1 "$run/ratios")"
    sql 'truncate rowbell.events, plain, captured' && sql checkpoint
done
results+=("$(ratio write_bulk_100000 "$(median <"$run/ratios")")")
echo
printf '%s\n' "${results[@]}"
