#!/usr/bin/env bash
# Signed deliveries beside graphile-worker with undici: per second and CPU each, at receiver delays and 1 or 1,000 endpoints; isolation.
# [--jobs N] a run (20000; three times as many where answers come at once, so that each run takes seconds); [--rounds N] (3);
# [--seconds N] of the isolation runs (15). CPU is that of the sending process.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usual=20000 rounds=3 seconds=15
while [ $# -gt 0 ]; do
    case $1 in
    --jobs) usual=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    *) die "there is no option $1" 2 ;;
    esac
    shift 2
done
packages_need bench_webhook
bench_npm
bench_start
pg_psql -c 'create database graphile'
sql "create table posts (id int primary key); select rowbell.publish('posts')" >/dev/null
in_flight=256

# receiver DELAY: sets receiver_url. Without a delay it is nginx, so that the receiver is not what is measured.
receiver() {
    if [ -n "${receiver_pid:-}" ]; then kill "$receiver_pid" 2>/dev/null && wait "$receiver_pid" 2>/dev/null || true; fi
    local port
    if [ "$1" = 0 ]; then
        port=$(free_port)
        cat >"$run/nginx.conf" <<END_CONF
daemon off; worker_processes 1; pid $run/nginx.pid; error_log stderr crit;
events { worker_connections 4096; }
http {
    access_log off; keepalive_requests 10000000; client_body_temp_path $run/body; proxy_temp_path $run/proxy;
    fastcgi_temp_path $run/fastcgi; uwsgi_temp_path $run/uwsgi; scgi_temp_path $run/scgi;
    server { listen 127.0.0.1:$port backlog=4096; location / { return 204; } }
}
END_CONF
        nginx -p "$run" -c "$run/nginx.conf" 2>/dev/null &
        receiver_pid=$!
        until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do kill -0 $receiver_pid; done
    else
        : >"$run/port"
        "$node" "$root/bench/receiver.mjs" "$1" >"$run/port" &
        receiver_pid=$!
        until [ -s "$run/port" ]; do kill -0 $receiver_pid; done
        port=$(cat "$run/port")
    fi
    background+=("$receiver_pid")
    receiver_url=http://127.0.0.1:$port
}
# endpoints N: N subscriptions at the receiver, and the same URLs for the others.
endpoints() {
    sql "delete from rowbell.subscriptions where kind = 'webhook'; truncate rowbell.jobs, rowbell.jobs_waiting, rowbell.attempts, rowbell.events;
         select count(a.*) from generate_series(1, $1) i,
                rowbell.add_webhook('w' || i, '$receiver_url/' || i, '{posts.*}', null, '{\"allow_http\": true}') a;
         update rowbell.subscriptions set settings = settings || '{\"max_in_flight\": $(($1 == 1 ? in_flight : 64))}' where kind = 'webhook'" >/dev/null
    sql 'vacuum analyze rowbell.subscriptions'
    seq -f "$receiver_url/%.0f" 1 "$1" >"$run/urls"
}
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
dispatcher=("$build_directory/dispatcher/rowbell-dispatcher" --database-url "$database_url" --lanes webhook --allow-egress 127.0.0.1
    --concurrency webhook=$in_flight --log-level error)
# Each sets speed and cpu (microseconds a delivery).
ours() {
    fill "$jobs" && sql checkpoint
    local since spent
    since=$(sql 'select clock_timestamp()')
    spent=$( { TIMEFORMAT='%U %S'; time "${dispatcher[@]}" --once; } 2>&1)
    [ "$(sql "select count(*) from rowbell.attempts where class = 'delivered' and started_at >= '$since'")" = "$jobs" ] || die 'deliveries are missing'
    speed=$(sql "select count(*) / extract(epoch from max(started_at + total_ms * interval '1 ms') - min(started_at)) from rowbell.attempts where started_at >= '$since'")
    cpu=$(awk -v n="$jobs" '{print ($1 + $2) * 1e6 / n}' <<<"$spent")
}
theirs() {
    local url=$pg_url/graphile
    "$node" "$root/bench/queues.mjs" graphile fill "$url" --jobs "$jobs" && pg_psql -c checkpoint
    read -r speed cpu < <("$node" "$root/bench/queues.mjs" graphile run "$url" --jobs "$jobs" --urls "$run/urls" --concurrency $in_flight | tail -n 1)
    cpu=$(awk -v n="$jobs" -v s="$cpu" 'BEGIN {print s * 1e6 / n}')
}

results=()
printf '%-22s %10s %10s %10s %14s %14s\n' receiver endpoints rowbell/s graphile/s 'rowbell us' 'graphile us'
for delay in 0 20 100; do
    receiver $delay
    jobs=$((delay == 0 ? 3 * usual : usual))
    for count in 1 1000; do
        endpoints $count
        : >"$run/speeds" && : >"$run/cpus"
        for ((round = 0; round < rounds; round++)); do
            ours && a=$speed x=$cpu
            theirs
            divide "$a" "$speed" >>"$run/speeds" && divide "$cpu" "$x" >>"$run/cpus"
            printf '%-22s %10s %10.0f %10.0f %14.1f %14.1f\n' "after $delay ms" $count "$a" "$speed" "$x" "$cpu"
        done
        name=$delay$([ $count = 1 ] && echo ms || echo ms_1000)
        results+=("$(ratio webhook_vs_graphile_$name "$(median <"$run/speeds")")" "$(ratio webhook_cpu_vs_graphile_$name "$(median <"$run/cpus")")")
    done
done

# 100 endpoints get 200 jobs a second; one refuses connections and one answers after 30 s, or all are well.
late() {
    sql "truncate rowbell.jobs, rowbell.jobs_waiting, rowbell.attempts, rowbell.events"
    "${dispatcher[@]}" &
    local pid=$! i ends=$((SECONDS + seconds))
    background+=("$pid")
    while [ $SECONDS -lt $ends ]; do fill 20 && sleep 0.1; done
    kill $pid && wait $pid || true
    sql "select percentile_cont(0.99) within group (order by extract(epoch from a.started_at - e.occurred_at) * 1000 + a.total_ms)
           from rowbell.attempts a join rowbell.events e on e.seq = a.event_seq join rowbell.subscriptions s on s.id = a.subscription_id
          where a.class = 'delivered' and s.name not in ('w1', 'w2')"
}
receiver 5
: >"$run/isolation"
for ((round = 0; round < rounds; round++)); do
    endpoints 100 && well=$(late)
    sql "update rowbell.subscriptions set settings = settings || '{\"url\": \"http://127.0.0.1:1/\"}' where name = 'w1';
         update rowbell.subscriptions set settings = settings || '{\"url\": \"$receiver_url/slow\"}' where name = 'w2'"
    ill=$(late)
    divide "$ill" "$well" >>"$run/isolation"
    printf 'p99 of the healthy: %.1f ms; beside 1 %% dead and 1 %% slow: %.1f ms\n' "$well" "$ill"
done
results+=("$(ratio webhook_p99_isolation "$(median <"$run/isolation")")")
echo
printf '%s\n' "${results[@]}"
