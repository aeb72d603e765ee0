#!/usr/bin/env bash
# Fan-out by the real relay: events/s against the bound (the same job rows by one INSERT ... SELECT), and what slows others.
# [--rounds N] (3); [--events N] a run (100000); [--backlog N] waiting rows for the backlog test (1000000).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
rounds=3 events=100000 backlog=1000000
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --events) events=$2 ;;
    --backlog) backlog=$2 ;;
    *) die "there is no option $1" 2 ;;
    esac
    shift 2
done
bench_start
sql "create table posts (id int primary key, title text); select rowbell.publish('posts');
     create table bound (like rowbell.jobs including all) with (fillfactor = 60)" >/dev/null
relay() { "$build_directory/relay/rowbell-relay" --database-url "$database_url" --log-level warn "$@"; }

# subscriptions K [OTHERS]: K that want every event, and others that want none of them; the stream's own is paused away.
subscriptions() {
    sql "delete from rowbell.subscriptions where kind = 'webhook'; truncate rowbell.events, rowbell.jobs, rowbell.jobs_waiting;
         update rowbell.subscriptions set types = '{none.*}' where name = 'stream';
         select count(*) from generate_series(1, $1) i, rowbell.add_webhook('w' || i, 'https://example.com/', '{posts.*}');
         select count(*) from generate_series(1, ${2:-0}) i,
           rowbell.add_webhook('o' || i, 'https://example.com/', array['posts.*'], 'tenant-' || i)" >/dev/null
    sql 'vacuum analyze rowbell.subscriptions, rowbell.routes'
}
# waiting N [FIRST]: N events wait.
waiting() {
    sql "insert into rowbell.events (type_id, key, op, subject)
         select t.id, i::text, 'create', 'posts/' || i from rowbell.event_types t, generate_series(1, $1) i where t.type = 'posts.create'"
}
# imported N: the same, analyzed before the commit, as autovacuum may: statistics say that nothing is there.
imported() {
    psql -qX -v ON_ERROR_STOP=1 "$database_url" <<END
begin;
insert into rowbell.events (type_id, key, op, subject)
  select t.id, i::text, 'create', 'posts/' || i from rowbell.event_types t, generate_series(1, $1) i where t.type = 'posts.create';
\\! psql -qX "$database_url" -c 'analyze rowbell.events'
commit;
END
}
# rate COMMAND...: events/s while COMMAND (a relay) drains what waits, by the marks in the table.
rate_of_all() {
    sql "select count(*) / extract(epoch from max(fanned_out_at) - min(fanned_out_at)) from rowbell.events where fanned_out_at >= '$1'"
}
drain() {
    local since
    since=$(sql 'select clock_timestamp()')
    relay --once
    rate_of_all "$since"
}
empty() { sql 'truncate rowbell.events, rowbell.jobs, rowbell.jobs_waiting' && sql checkpoint; }

printf '%-34s %12s %14s %8s\n' what events/s 'bound rows/s' share
for k in 1 3 10; do
    : >"$run/ratios"
    subscriptions $k
    for ((round = 0; round < rounds; round++)); do
        empty
        waiting "$events"
        speed=$(drain)
        [ "$(sql 'select count(*) from rowbell.jobs')" = $((events * k)) ] || die 'jobs are missing'
        sql 'truncate bound'
        started=$(date +%s.%N)
        sql "insert into bound (subscription_id, event_seq) select s, e from generate_series(1, $events) e, generate_series(1, $k) s"
        bound=$(awk -v a="$started" -v b="$(date +%s.%N)" -v n=$((events * k)) 'BEGIN {print n / (b - a)}')
        awk -v s="$speed" -v k=$k -v b="$bound" 'BEGIN {print s * k / b}' >>"$run/ratios"
        printf '%-34s %12.0f %14.0f %8.2f\n' "K=$k" "$speed" "$bound" "$(tail -n 1 "$run/ratios")"
    done
    results+=("$(ratio fanout_vs_bound_$k "$(median <"$run/ratios")")")
done

# Ten subscriptions that match, alone and among 10,000; rounds alternate.
: >"$run/ratios"
for ((round = 0; round < rounds; round++)); do
    subscriptions 10 && waiting "$events" && few=$(drain)
    subscriptions 10 9990 && waiting "$events" && many=$(drain)
    divide "$many" "$few" >>"$run/ratios"
    printf '%-34s %12.0f  (10: %.0f)\n' '10,000 subscriptions' "$many" "$few"
done
results+=("$(ratio fanout_10000_subscriptions "$(median <"$run/ratios")")")

# A held snapshot: nothing that is fanned out can be vacuumed, and rates of the later part count.
: >"$run/ratios"
: >"$run/long"
subscriptions 3
for ((round = 0; round < rounds; round++)); do
    empty && waiting "$events" && drain >/dev/null && waiting "$events" && free=$(drain)
    empty && session "begin isolation level repeatable read; select 1 from rowbell.installation" && waiting "$events" && drain >/dev/null && waiting "$events"
    held=$(drain)
    session_end
    divide "$held" "$free" >>"$run/ratios"
    # A writer that took a low seq and stays open: the mark may not pass it.
    empty && session "begin; insert into posts values (-$round - 1, 'open')" && waiting "$events" && drain >/dev/null && waiting "$events"
    long=$(drain)
    session_end
    divide "$long" "$free" >>"$run/long"
    printf '%-34s %12.0f  (free: %.0f, a writer open: %.0f)\n' 'held snapshot' "$held" "$free" "$long"
done
results+=("$(ratio fanout_held "$(median <"$run/ratios")")" "$(ratio fanout_long_writer "$(median <"$run/long")")")

# The first 10,000 of a large backlog against 10,000 that wait alone.
: >"$run/ratios"
first() {
    local pid
    sql checkpoint
    "$build_directory/relay/rowbell-relay" --database-url "$database_url" --log-level warn >/dev/null 2>&1 &
    pid=$!
    sql "do \$\$ declare last bigint := (select min(seq) + 9999 from rowbell.events); begin
           while not exists (select from rowbell.events where seq = last and fanned_out_at is not null) loop
             perform pg_sleep(0.01);
           end loop; end \$\$"
    kill $pid
    wait $pid || true
    sql "select count(*) / extract(epoch from max(f) - min(f)) from (select fanned_out_at as f from rowbell.events
         where fanned_out_at is not null order by fanned_out_at limit 10000) t"
}
for ((round = 0; round < rounds; round++)); do
    empty && waiting 10000 && few=$(first)
    empty && imported "$backlog" && many=$(first)
    divide "$many" "$few" >>"$run/ratios"
    printf '%-34s %12.0f  (10,000: %.0f)\n' "$backlog waiting" "$many" "$few"
done
results+=("$(ratio fanout_backlog "$(median <"$run/ratios")")")
echo
printf '%s\n' "${results[@]}"
