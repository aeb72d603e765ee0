#!/usr/bin/env bash
# Streams on which nothing happens: user-space memory of each, and CPU to accept it, beside nginx+nchan and the limit.
# [--rounds N] (3); [--connections N] (10000).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/sse/servers.sh"
rounds=3 connections=10000
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --connections) connections=$2 ;;
    *) die "there is no option $1" 2 ;;
    esac
    shift 2
done
sse_start

printf '%-12s %12s %16s %8s\n' server 'KiB/stream' 'accept CPU us' closed
for ((round = 0; round < rounds; round++)); do
    for server in raw rowbell nchan better_sse; do
        server_start $server
        load lines --connections "$connections" --hold 2
        server_stop
        value "$lines" idle_kib >>"$run/$server.kib"
        value "$lines" accept_cpu_us >>"$run/$server.accept"
        printf '%-12s %12s %16s %8s\n' $server "$(value "$lines" idle_kib)" "$(value "$lines" accept_cpu_us)" \
            "$(value "$lines" closed)"
    done
done
echo
losses
ratio sse_idle_kib "$(median <"$run/rowbell.kib")"
ratio sse_idle_vs_nchan "$(paste "$run/rowbell.kib" "$run/nchan.kib" | awk '{print $1 / $2}' | median)"
ratio sse_accept_cpu_vs_nchan "$(paste "$run/rowbell.accept" "$run/nchan.accept" | awk '{print $1 / $2}' | median)"
