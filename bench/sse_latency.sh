#!/usr/bin/env bash
# From COMMIT to the browser's side of the wire, through relay, dispatcher and gateway, against a bare LISTEN client.
# [--rounds N] (5); [--count N] commits a round (300); [--pause MS] between them on average (20, and then 400: asleep).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
rounds=5 count=300 pauses=(20 400)
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --count) count=$2 ;;
    --pause) pauses=("$2") ;;
    *) die "there is no option $1" 2 ;;
    esac
    shift 2
done
bench_start
redis_start "$run"
at_end+=('redis_stop "$run"')
read -ra flags <<<"$(pkg-config --cflags --libs libpq)"
cc -O2 -std=gnu17 -D_GNU_SOURCE "$root/bench/sse/latency.c" "${flags[@]}" -o "$run/latency"
sql "create table posts (id int primary key, title text); select rowbell.publish('posts')" >/dev/null
"$build_directory/relay/rowbell-relay" --database-url "$database_url" >"$run/relay.log" 2>&1 &
background+=($!)
"$build_directory/dispatcher/rowbell-dispatcher" --database-url "$database_url" --redis-url "$redis_url" --lanes sse \
    >"$run/dispatcher.log" 2>&1 &
background+=($!)
port=$(free_port)
"$build_directory/gateway/rowbell-gateway" --database-url "$database_url" --redis-url "$redis_url" \
    --auth none --listen "127.0.0.1:$port" >"$run/gateway.log" 2>&1 &
background+=($!)
until grep -q redis_up "$run/gateway.log" && grep -q stream_ready "$run/gateway.log"; do sleep 0.05; done

value() { sed -n "s/^$2=//p" <<<"$1"; }
printf '%-10s %12s %12s %12s %12s\n' 'pause ms' 'bare p50 us' 'bare p99 us' 'SSE p50 us' 'SSE p99 us'
for pause in "${pauses[@]}"; do
    n=$count
    [ "$pause" -lt 100 ] || n=$((count / 10))
    for ((round = 0; round < rounds; round++)); do
        lines=$("$run/latency" "$database_url" "$port" "$n" "$pause")
        printf '%-10s %12s %12s %12s %12s\n' "$pause" "$(value "$lines" bare_p50_us)" "$(value "$lines" bare_p99_us)" \
            "$(value "$lines" stream_p50_us)" "$(value "$lines" stream_p99_us)"
        divide "$(value "$lines" stream_p50_us)" "$(value "$lines" bare_p50_us)" >>"$run/p50.$pause"
        divide "$(value "$lines" stream_p99_us)" "$(value "$lines" bare_p99_us)" >>"$run/p99.$pause"
    done
done
echo
ratio sse_latency_p50 "$(median <"$run/p50.${pauses[0]}")"
ratio sse_latency_p99 "$(median <"$run/p99.${pauses[0]}")"
[ ${#pauses[@]} -lt 2 ] || ratio sse_latency_asleep_p50 "$(median <"$run/p50.${pauses[1]}")"
