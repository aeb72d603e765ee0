#!/usr/bin/env bash
# Claim and ack of no-op jobs: the real dispatcher (--sink discard, attempts recorded) beside graphile-worker and pg-boss.
# [--jobs N] a run (100000); [--rounds N] (3); [--decay N] jobs worked off before the last measurement (1000000).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
jobs=100000 rounds=3 decay=1000000
while [ $# -gt 0 ]; do
    case $1 in
    --jobs) jobs=$2 ;;
    --rounds) rounds=$2 ;;
    --decay) decay=$2 ;;
    *) die "there is no option $1" 2 ;;
    esac
    shift 2
done
bench_npm
bench_start
for queue in graphile pgboss; do pg_psql -c "create database $queue"; done
subscriptions=16
sql "create table posts (id int primary key); select rowbell.publish('posts');
     select count(a.*) from generate_series(1, $subscriptions) i,
            rowbell.add_webhook('w' || i, 'https://example.com/', '{posts.*}', null, '{\"max_in_flight\": 64}') a" >/dev/null

# fill N: N jobs, with events of their own, evenly over the subscriptions.
fill() {
    sql "truncate rowbell.events, rowbell.jobs, rowbell.attempts" && more "$1"
    sql 'vacuum analyze rowbell.events, rowbell.jobs, rowbell.attempts' && sql checkpoint
}
more() {
    sql "with e as (insert into rowbell.events (type_id, key, op, subject, fanned_out_at)
           select t.id, i::text, 'create', 'posts/' || i, now() from rowbell.event_types t, generate_series(1, $1) i
            where t.type = 'posts.create' returning seq)
         insert into rowbell.jobs (subscription_id, event_seq)
           select (select min(id) from rowbell.subscriptions where kind = 'webhook') + seq % $subscriptions, seq from e"
}
# work: jobs/s of one dispatcher from its first claim to its last ack.
work() {
    local since
    since=$(sql 'select clock_timestamp()')
    "$build_directory/dispatcher/rowbell-dispatcher" --database-url "$database_url" --once --lanes webhook --sink discard \
        --allow-discard --concurrency webhook=1000 --log-level error
    [ "$(sql 'select count(*) from rowbell.jobs')" = 0 ] || die 'jobs are left'
    sql "select count(*) / extract(epoch from max(started_at) - min(started_at)) from rowbell.attempts where started_at >= '$since'"
}
# peer QUEUE: jobs/s of it.
peer() {
    local url=$pg_url/$1
    "$node" "$root/bench/queues.mjs" "$1" fill "$url" --jobs "$jobs" && pg_psql -c checkpoint
    "$node" "$root/bench/queues.mjs" "$1" run "$url" --jobs "$jobs" | tail -n 1 | cut -d' ' -f1
}

printf '%-26s %12s\n' queue jobs/s
for name in graphile pgboss held decay; do : >"$run/$name"; done
for ((round = 0; round < rounds; round++)); do
    fill "$jobs" && ours=$(work)
    graphile=$(peer graphile)
    pgboss=$(peer pgboss)
    printf '%-26s %12.0f\n' rowbell "$ours" graphile-worker "$graphile" pg-boss "$pgboss"
    divide "$ours" "$graphile" >>"$run/graphile"
    divide "$ours" "$pgboss" >>"$run/pgboss"
    # Nothing that was delivered can be vacuumed: twice as many, of which the later half counts.
    fill "$jobs" && session 'begin isolation level repeatable read; select 1 from rowbell.installation'
    work >/dev/null && more "$jobs" && sql checkpoint && held=$(work)
    session_end
    fill "$jobs" && work >/dev/null && more "$jobs" && sql checkpoint && free=$(work)
    printf '%-26s %12.0f  (free: %.0f)\n' 'rowbell, held snapshot' "$held" "$free"
    divide "$held" "$free" >>"$run/held"
done
results=("$(ratio jobs_vs_graphile "$(median <"$run/graphile")")" "$(ratio jobs_vs_pgboss "$(median <"$run/pgboss")")"
    "$(ratio jobs_held "$(median <"$run/held")")")
fill "$jobs" && before=$(work)
more "$decay" && work >/dev/null
more "$jobs" && sql checkpoint && after=$(work)
printf '%-26s %12.0f  (before: %.0f)\n' "rowbell, after $decay" "$after" "$before"
results+=("$(ratio jobs_decay "$(divide "$after" "$before")")")
echo
printf '%s\n' "${results[@]}"
