#!/usr/bin/env bash
# One event to many streams: the gateway beside nginx+nchan, pushpin, better-sse and the limit (a raw epoll server).
# The server has one core, everything else the other. Rounds alternate; ratios are medians over the rounds.
# [--rounds N] (5); [--seconds N] a run (3); [--connections N] (5000); [--only NAME,...] of one, burst, tenants, stopped.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/sse/servers.sh"
rounds=5 seconds=3 connections=5000 only=one,burst,tenants,stopped
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --connections) connections=$2 ;;
    --only) only=$2 ;;
    *) die "there is no option $1" 2 ;;
    esac
    shift 2
done
sse_start
results=()

# measure TEST SERVER ARGUMENT...: one run of one server, printed; its rate is kept in $run/TEST.SERVER.
measure() {
    local test=$1 server=$2 lines
    shift 2
    server_start "$server" "${tenants:-}"
    load lines "$@"
    server_stop
    value "$lines" rate >>"$run/$test.$server"
    value "$lines" p99_us >>"$run/$test.$server.p99"
    value "$lines" accept_cpu_us >>"$run/$test.$server.accept"
    printf '%-10s %-12s %12s %8s %10s %10s %8s %6s %6s\n' "$test" "$server" "$(value "$lines" rate)" \
        "$(value "$lines" events_a_read)" "$(value "$lines" p50_us)" "$(value "$lines" p99_us)" \
        "$(value "$lines" server_cpu)" "$(value "$lines" faults)" "$(value "$lines" closed)"
}
# compare NAME FILE OTHER_FILE: the median of FILE / OTHER_FILE, line by line.
compare() {
    results+=("$(ratio "$1" "$(paste "$run/$2" "$run/$3" | awk '{print $1 / $2}' | median)")")
}
chosen() { [[ ,$only, == *,$1,* ]]; }

printf '%-10s %-12s %12s %8s %10s %10s %8s %6s %6s\n' test server events/s 'a read' 'p50 us' 'p99 us' cpu faults closed
if chosen one; then
    for ((round = 0; round < rounds; round++)); do
        for server in raw rowbell nchan better_sse pushpin; do
            measure one $server --connections "$connections" --in-flight 1 --seconds "$seconds"
        done
    done
    compare sse_vs_raw one.rowbell one.raw
    compare sse_vs_nchan one.rowbell one.nchan
    compare sse_vs_better_sse one.rowbell one.better_sse
    compare sse_vs_pushpin one.rowbell one.pushpin
    compare sse_accept_cpu_vs_nchan one.rowbell.accept one.nchan.accept
fi
if chosen burst; then
    for ((round = 0; round < rounds; round++)); do
        for server in raw rowbell nchan better_sse; do
            measure burst $server --connections "$connections" --in-flight 8 --seconds "$seconds"
        done
    done
    compare sse_burst_vs_raw burst.rowbell burst.raw
    compare sse_burst_vs_nchan burst.rowbell burst.nchan
fi
# 500 tenants of 10, 8 events of each in flight: an event costs those who may see it, and theirs are coalesced.
if chosen tenants; then
    tenants=yes
    for ((round = 0; round < rounds; round++)); do
        for server in raw rowbell nchan; do
            measure tenants $server --connections 5000 --channels 500 --in-flight 8 --seconds "$seconds"
        done
    done
    tenants=
    compare sse_tenants_vs_raw tenants.rowbell tenants.raw
    compare sse_tenants_vs_nchan tenants.rowbell tenants.nchan
fi
# One reader stops: what do the others feel?
if chosen stopped; then
    for ((round = 0; round < rounds; round++)); do
        measure all_read rowbell --connections 1000 --in-flight 1 --seconds "$seconds"
        measure one_stops rowbell --connections 1000 --in-flight 1 --seconds "$seconds" --stopped-reader
    done
    compare sse_stopped_reader_p99 one_stops.rowbell.p99 all_read.rowbell.p99
fi
echo
losses
printf '%s\n' "${results[@]}"
