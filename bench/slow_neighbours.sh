#!/usr/bin/env bash
# Healthy endpoints beside slow ones: p99 of the healthy with 10 of 100 endpoints that answer 200 after 15 s, over that without them.
# [--rounds N] (3); [--seconds N] of each run (30: the slow ones must be known and have a backlog); [--rate N] events a second (200).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
rounds=3 seconds=30 rate=200
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --rate) rate=$2 ;;
    *) die "there is no option $1" 2 ;;
    esac
    shift 2
done
packages_need node
node=$(node_find)
bench_start
sql "create table posts (id int primary key); select rowbell.publish('posts')" >/dev/null
: >"$run/port"
"$node" "$root/bench/receiver.mjs" 5 15000 >"$run/port" &
background+=($!)
until [ -s "$run/port" ]; do kill -0 $!; done
receiver_url=http://127.0.0.1:$(cat "$run/port")
sql "select count(a.*) from generate_series(1, 100) i,
            rowbell.add_webhook('w' || i, '$receiver_url/' || i, '{posts.*}', null, '{\"allow_http\": true}') a" >/dev/null
fill() {
    sql "with e as (insert into rowbell.events (type_id, key, op, subject, fanned_out_at)
           select t.id, i::text, 'create', 'posts/' || i, now() from rowbell.event_types t, generate_series(1, $1) i
            where t.type = 'posts.create' returning seq),
         s as (select id, row_number() over (order by id) - 1 as n, count(*) over () as total from rowbell.subscriptions where kind = 'webhook'),
         j as (insert into rowbell.jobs (subscription_id, event_seq) select s.id, e.seq from e join s on s.n = e.seq % s.total
           returning subscription_id % 64 as shard, event_seq)
         select pg_notify('rowbell_jobs', string_agg('webhook ' || shard || ' ' || lowest, ' '))
           from (select shard, min(event_seq) as lowest from j group by shard) w" >/dev/null
}
# p99 from commit to answer of the healthy ones, events that are not there counted as late as the run's end.
late() {
    sql "truncate rowbell.jobs, rowbell.jobs_waiting, rowbell.attempts, rowbell.events, rowbell.subscription_state"
    "$build_directory/dispatcher/rowbell-dispatcher" --database-url "$database_url" --lanes webhook --allow-egress 127.0.0.1 \
        --log-level error &
    local pid=$! ends=$((SECONDS + seconds))
    background+=("$pid")
    while [ $SECONDS -lt $ends ]; do fill $((rate / 10)) && sleep 0.1; done
    sql "select percentile_cont(0.99) within group (order by coalesce(extract(epoch from a.started_at - e.occurred_at) * 1000 + a.total_ms, 1e6))
           from rowbell.events e
           join (select id, row_number() over (order by id) - 1 as n, count(*) over () as total from rowbell.subscriptions where kind = 'webhook') s
             on s.n = e.seq % s.total
           left join rowbell.attempts a on a.event_seq = e.seq and a.class = 'delivered'
          where s.n >= 10 and e.op is not null and e.occurred_at < now() - interval '1 s'"
    kill -9 $pid && wait $pid 2>/dev/null || true
}
: >"$run/ratios"
for ((round = 0; round < rounds; round++)); do
    sql "update rowbell.subscriptions set settings = settings || jsonb_build_object('url', '$receiver_url/' || id) where kind = 'webhook'"
    well=$(late)
    sql "update rowbell.subscriptions set settings = settings || '{\"url\": \"$receiver_url/slow\"}'
          where id in (select id from rowbell.subscriptions where kind = 'webhook' order by id limit 10)"
    beside=$(late)
    divide "$beside" "$well" >>"$run/ratios"
    printf 'p99 of the healthy: %.1f ms; beside 10 %% that answer after 15 s: %.1f ms\n' "$well" "$beside"
done
ratio webhook_p99_beside_slow "$(median <"$run/ratios")"
