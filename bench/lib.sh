# What the benchmarks share: a server of their own, rounds that alternate, medians of per-round ratios.
. "$(dirname "${BASH_SOURCE[0]}")/../dev/lib.sh"
shopt -s inherit_errexit # what fails in $(...) ends the benchmark too

# bench_start [NAME=VALUE...]: builds, starts PostgreSQL, makes database bench; sets database_url and build_directory.
bench_start() {
    packages_need build run
    mkdir -p "$state"
    build_targets=("${programs[@]}")
    build_directory=$(build build)
    run=$state/bench-$$
    mkdir -p "$run"
    trap bench_stop EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    pg_make "$run"
    pg_start "$run" max_connections=100 shared_buffers=512MB max_wal_size=8GB "$@"
    pg_psql -c 'create database bench'
    database_url=$pg_url/bench
    migrate "$database_url" >"$run/migrate.log" 2>&1 || { cat "$run/migrate.log" >&2 && die 'rowbell migrate failed'; }
    printf '%s, %s cores, %s, PostgreSQL %s, fsync %s, shared_buffers %s\n\n' \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc --all)" \
        "$(sed -n 's/^MemTotal: *//p' /proc/meminfo)" "$(sql 'show server_version')" \
        "$(sql 'show fsync')" "$(sql 'show shared_buffers')"
}

# bench_npm: what bench/package.json names; sets node.
bench_npm() {
    packages_need node
    mkdir -p "$state"
    npm_need
    node=$(node_find) || die 'there is no node'
    exec 8>"$state/npm.lock"
    flock 8
    if ! cmp -s "$root/bench/package-lock.json" "$root/bench/node_modules/.rowbell-lock"; then
        say 'installing npm packages (bench/package.json)'
        (cd "$root/bench" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error) >"$state/npm.log" 2>&1 8>&- || {
            tail -20 "$state/npm.log" >&2
            die "npm ci failed: $state/npm.log"
        }
        cp "$root/bench/package-lock.json" "$root/bench/node_modules/.rowbell-lock"
    fi
    exec 8>&-
}

background=()
at_end=() # commands that run before the servers stop
bench_stop() {
    local status=$? pid command
    trap '' INT TERM
    for command in "${at_end[@]}"; do eval "$command" || true; done
    for pid in "${background[@]}"; do kill "$pid" 2>/dev/null || true; done
    pg_stop "$run" immediate
    pg_remove "$run"
    rm -rf "$run"
    exit $status
}

sql() { psql -qXAt -v ON_ERROR_STOP=1 "$database_url" -c "$1"; }
# session SQL: a connection that runs SQL, then stays open for an hour; sets session_pid.
session() {
    psql -qXAt "$database_url" -c "$1; select pg_sleep(3600)" >/dev/null 2>&1 &
    session_pid=$!
    background+=("$session_pid")
}
session_end() {
    sql "select count(pg_terminate_backend(pid)) from pg_stat_activity where query like '%pg_sleep(3600)%' and pid <> pg_backend_pid()" >/dev/null
    wait "$session_pid" 2>/dev/null || true
}
# tps FILE CLIENTS SECONDS
tps() {
    pgbench -n -M prepared -f "$1" -c "$2" -j "$(($2 < 2 ? 1 : 2))" -T "$3" "$database_url" 2>"$run/pgbench.log" |
        sed -n 's/^tps = \([0-9.]*\).*/\1/p' ||
        { cat "$run/pgbench.log" >&2 && die 'pgbench failed'; }
}
median() { sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
divide() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.3f\n", a / b}'; }
ratio() { printf 'ratio %s %.3f\n' "$1" "$2"; }
