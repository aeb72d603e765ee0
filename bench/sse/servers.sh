# The servers that are compared, each on one core, and the load on the other. Sourced after bench/lib.sh.
server_core=0 load_core=1

# sse_start: packages, PostgreSQL, Redis, the load client; everything but the servers stays on the load's core.
sse_start() {
    taskset -cp $load_core $$ >/dev/null
    packages_need bench_sse
    bench_start fsync=off # positions and fan-out are measured, not the disk
    at_end+=(sse_stop)
    redis_start "$run"
    local flags
    read -ra flags <<<"$(pkg-config --cflags --libs libpq)"
    cc -O2 -std=gnu17 -D_GNU_SOURCE -I"$root" "$root/bench/sse/load.c" "$root"/common/{stream_message,buffer,memory}.c \
        "${flags[@]}" -lcrypto -o "$run/load"
    cc -O2 -std=gnu17 -D_GNU_SOURCE "$root/bench/sse/raw.c" -o "$run/raw"
    (cd "$root/bench/sse" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error >"$run/npm.log" 2>&1) ||
        { cat "$run/npm.log" >&2 && die 'npm ci failed'; }
    ulimit -n "$(ulimit -Hn)"
}
sse_stop() {
    server_stop
    redis_stop "$run"
}

# on_server_core COMMAND...: in the background, in a group of its own; sets server_group.
on_server_core() {
    setsid taskset -c $server_core "$@" >"$run/server.log" 2>&1 </dev/null 7>&- &
    server_group=$!
}
server_group=
server_stop() {
    [ -n "$server_group" ] || return 0
    kill -TERM -- "-$server_group" 2>/dev/null || true
    local try
    for try in {1..100}; do
        kill -0 -- "-$server_group" 2>/dev/null || break
        sleep 0.02
    done
    kill -KILL -- "-$server_group" 2>/dev/null || true
    wait "$server_group" 2>/dev/null || true
    [ -z "${origin:-}" ] || { kill "$origin" && wait "$origin" || true; } 2>/dev/null
    origin='' server_group=''
}
wait_port() {
    local try
    for try in {1..500}; do
        # shellcheck disable=SC2188
        (: </dev/tcp/127.0.0.1/"$1") 2>/dev/null && return
        sleep 0.02
    done
    cat "$run/server.log" >&2
    die "nobody listens on port $1"
}

# server_start NAME [tenants]: sets server_name and load_arguments: where its streams are, and how to publish.
server_start() {
    server_name=$1
    port=$(free_port) control=$(free_port)
    "start_$1" "${2:-}"
    server_arguments=()
    local pid
    for pid in $(ps -o pid= -g "$server_group"); do server_arguments+=(--server "$pid"); done
}

start_raw() {
    on_server_core "$run/raw" "$port" "$control"
    wait_port "$port"
    load_arguments=(--port "$port" --path '/events?channel=%d' --publish "raw:$control")
}

start_rowbell() {
    local way=(--auth none)
    [ -z "$1" ] || way=(--auth header --trusted-peer 127.0.0.0/8)
    # Each start has a log of its own length: the ring is filled from it.
    on_server_core "$build_directory/gateway/rowbell-gateway" --database-url "$database_url" --redis-url "$redis_url" \
        --listen "127.0.0.1:$port" --max-connections 100000 "${way[@]}"
    until grep -q redis_up "$run/server.log" && grep -q stream_ready "$run/server.log"; do
        kill -0 "$server_group" 2>/dev/null || { cat "$run/server.log" >&2 && die 'the gateway did not start'; }
        sleep 0.02
    done
    load_arguments=(--port "$port" --path /events --publish "rowbell:${redis_url##*:}" --database-url "$database_url")
    [ -z "$1" ] || load_arguments+=(--header 'X-Rowbell-Scopes: s%d')
}

start_nchan() {
    cat >"$run/nchan.conf" <<END
load_module /usr/lib/nginx/modules/ngx_nchan_module.so;
worker_processes 1;
daemon off;
pid $run/nchan.pid;
error_log stderr warn;
worker_rlimit_nofile 200000;
events { worker_connections 100000; }
http {
    access_log off;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    nchan_shared_memory_size 512M;
    client_body_temp_path $run/nchan-body; proxy_temp_path $run/nchan-proxy; fastcgi_temp_path $run/nchan-f;
    uwsgi_temp_path $run/nchan-u; scgi_temp_path $run/nchan-s;
    server {
        listen 127.0.0.1:$port backlog=1024;
        location = /events { nchan_subscriber eventsource; nchan_channel_id c\$arg_channel; }
        location = /publish { nchan_publisher; nchan_channel_id c\$arg_channel; nchan_message_buffer_length 100; }
    }
}
END
    on_server_core nginx -p "$run" -e stderr -c "$run/nchan.conf"
    wait_port "$port"
    until [ "$(ps -o pid= -g "$server_group" | wc -l)" -ge 2 ]; do sleep 0.02; done # the worker
    load_arguments=(--port "$port" --path '/events?channel=%d' --publish "http:$port:/publish?channel=%d")
}

start_better_sse() {
    on_server_core "$(node_find)" "$root/bench/sse/better-sse.mjs" "$port"
    wait_port "$port"
    load_arguments=(--port "$port" --path '/events?channel=%d' --publish "http:$port:/publish?channel=%d")
}

# Its streams are held open by an answer of the application, which here is an nginx that says so.
start_pushpin() {
    local backend offset
    backend=$(free_port)
    cat >"$run/origin.conf" <<END
worker_processes 1;
daemon off;
pid $run/origin.pid;
error_log stderr warn;
events { worker_connections 2000; }
http {
    access_log off;
    client_body_temp_path $run/origin-body; proxy_temp_path $run/origin-proxy; fastcgi_temp_path $run/origin-f;
    uwsgi_temp_path $run/origin-u; scgi_temp_path $run/origin-s;
    server {
        listen 127.0.0.1:$backend backlog=1024;
        location / {
            default_type text/event-stream;
            add_header Grip-Hold stream;
            add_header Grip-Channel c\$arg_channel;
            return 200 "retry: 3000\n\n";
        }
    }
}
END
    nginx -p "$run" -e stderr -c "$run/origin.conf" >"$run/origin.log" 2>&1 </dev/null 7>&- &
    origin=$!
    mkdir -p "$run/pushpin" "$run/pushpin/log"
    echo "* 127.0.0.1:$backend" >"$run/pushpin/routes"
    # Debian's zurl is a service with sockets elsewhere; ours is pushpin's own child.
    sed 's|ipc:///var/run/zurl/|ipc://{rundir}/{ipc_prefix}|' /usr/lib/pushpin/internal.conf >"$run/pushpin/internal.conf"
    sed -e "s|^rundir=.*|rundir=$run/pushpin|; s|^http_port=.*|http_port=$port|; s|^logdir=.*|logdir=$run/pushpin/log|" \
        -e "s|^routesfile=.*|routesfile=$run/pushpin/routes|; s|^push_in_http_port=.*|push_in_http_port=$control|" \
        -e "s|^push_in_spec=.*|push_in_spec=ipc://$run/pushpin/in|; s|^push_in_sub_specs=.*|push_in_sub_specs=ipc://$run/pushpin/sub|" \
        -e "s|^command_spec=.*|command_spec=ipc://$run/pushpin/command|; s|^log_level=.*|log_level=1|" \
        -e "s|^include=.*|include=$run/pushpin/internal.conf|" -e "s/^services=.*/services=condure,zurl,pushpin-proxy,pushpin-handler/" \
        -e "s|^message_rate=.*|message_rate=1000000000|; s|^message_hwm=.*|message_hwm=1000000|" \
        /etc/pushpin/pushpin.conf >"$run/pushpin/pushpin.conf"
    on_server_core pushpin --config="$run/pushpin/pushpin.conf"
    wait_port "$port"
    wait_port "$control"
    load_arguments=(--port "$port" --path '/events?channel=%d' --publish "pushpin:$control")
}

# load RESULT ARGUMENT...: runs the load on the server that was started; RESULT is set to its lines. What a competitor
# lost is noted for losses(); ours may lose nothing.
load() {
    local -n result=$1
    local closed faults
    shift
    result=$("$run/load" "${load_arguments[@]}" "${server_arguments[@]}" "$@") ||
        die "the load on $server_name failed: $result $(tail -n 3 "$run/server.log")"
    closed=$(value "$result" closed) faults=$(value "$result" faults)
    [ "$closed" -gt 0 ] || [ "${faults:-0}" -gt 0 ] || return 0
    [ "$server_name" != rowbell ] ||
        die "the gateway closed $closed streams, ${faults:-0} events were lost, repeated or reordered: $(tail -n 3 "$run/server.log")"
    echo "$server_name $closed ${faults:-0}" >>"$run/losses"
}
# losses: a line for each server that lost something, over all runs.
losses() {
    [ -e "$run/losses" ] || return 0
    awk '{closed[$1] += $2; faults[$1] += $3}
         END {for (s in closed) printf "%s: %d streams closed, %d events lost, repeated or reordered\n", s, closed[s], faults[s]}' \
        "$run/losses" | sort
    echo
}
value() { sed -n "s/^$2=//p" <<<"$1"; }
