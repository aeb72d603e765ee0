# What dev/* share: packages, the build, a private PostgreSQL and Redis. Sourced by bash, after set -euo pipefail.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
state=$root/.rowbell

say() { printf '%s\n' "$*" >&2; }
die() {
    say "error: $1"
    exit "${2:-1}"
}

# ---- packages ------------------------------------------------------------------------------------------------------

# One list for each need; Debian 13 has llhttp as a library, Debian 12 only its C sources inside node-llhttp.
packages_for() {
    case $1 in
    build)
        printf '%s\n' gcc libc6-dev meson ninja-build pkg-config python3 libpq-dev libuv1-dev libhiredis-dev libjson-c-dev \
            libcurl4-openssl-dev libc-ares-dev libssl-dev uthash-dev check
        if package_known libllhttp-dev; then echo libllhttp-dev; else echo node-llhttp; fi # after lists_need
        ;;
    run) printf '%s\n' postgresql redis-server curl util-linux ;;
    test) printf '%s\n' pgbouncer faketime php-cli php-pgsql ;;
    browser) printf '%s\n' nodejs npm chromium nginx-light ;;
    node) printf '%s\n' nodejs npm ;;
    bench_webhook) printf '%s\n' nginx-light ;;
    bench_sse) printf '%s\n' nodejs npm nginx-light libnginx-mod-nchan pushpin zurl pkg-config ;;
    compose) printf '%s\n' docker.io docker-compose debootstrap ;;
    on) printf '%s\n' debootstrap ;;
    lint) printf '%s\n' clang clang-format clang-tidy libclang-rt-dev cppcheck docker-compose ;;
    fuzz) printf '%s\n' clang libclang-rt-dev ;;
    esac
}
# lists_need: without its lists (a fresh machine) apt knows neither package, and what is chosen would be a guess.
lists_need() {
    ! package_known libllhttp-dev && ! package_known node-llhttp || return 0
    if [ "$(id -u)" -ne 0 ]; then die "apt has no list of packages yet. Fetch it, then run this again: sudo apt-get update"; fi
    say "fetching apt's lists of packages"
    mkdir -p "$state"
    (flock 8 && apt-get update >"$state/apt.log" 2>&1 </dev/null) 8>"$state/apt.lock" ||
        die "apt-get update failed: see $state/apt.log"
}
# No pipe to grep -q: that ends at its match, and apt-cache, which still writes, fails then.
package_known() { [[ $(apt-cache policy "$1" 2>/dev/null) == *'Candidate: '[0-9]* ]]; }
# Some may come from elsewhere: then their program counts.
package_installed() {
    case $1 in
    nodejs) command -v node >/dev/null && return ;;
    npm | chromium | docker-compose | redis-server) command -v "$1" >/dev/null && return ;;
    nginx-light) command -v nginx >/dev/null && return ;;
    docker.io) command -v dockerd >/dev/null && return ;;
    postgresql) pg_bin_find >/dev/null && return ;;
    esac
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# packages_need NEED...: installs what is missing, as root; a user is told the line to type.
packages_need() {
    command -v dpkg-query >/dev/null || return 0 # not Debian: the tools are looked for when they are used
    local need package missing=()
    [[ " $* " != *' build '* ]] || lists_need
    for need in "$@"; do
        for package in $(packages_for "$need"); do
            package_installed "$package" || missing+=("$package")
        done
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        say "These packages are missing. Install them, then run this again:"
        say "  sudo apt-get install --no-install-recommends ${missing[*]}"
        exit 1
    fi
    say "installing ${#missing[@]} packages: ${missing[*]}"
    mkdir -p "$state"
    exec 8>"$state/apt.lock"
    flock 8
    if ! (packages_install "${missing[@]}") 8>&-; then
        tail -5 "$state/apt.log" >&2
        die "apt-get failed: see $state/apt.log"
    fi
    exec 8>&-
}

# Debian's servers start themselves and make a cluster when they are installed. Neither is wanted here, and the machine
# is left as it was: both switches are taken back, and a service that came with this is not enabled for the next boot.
# Runs in a subshell of its own; its status is that of apt-get.
packages_install() {
    policy=/usr/sbin/policy-rc.d
    policy_saved='' cluster_made=''
    cluster=/etc/postgresql-common/createcluster.d
    trap packages_switches_back EXIT
    trap 'exit 130' INT TERM
    if [ -e "$policy" ]; then
        policy_saved=$policy.before-rowbell
        mv "$policy" "$policy_saved"
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    cluster_made=$([ -d "$cluster" ] || echo yes)
    mkdir -p "$cluster"
    echo 'create_main_cluster = false' >"$cluster/rowbell.conf"

    export DEBIAN_FRONTEND=noninteractive
    local log=$state/apt.log service status=0 new=()
    for service in redis-server nginx; do
        command -v "$service" >/dev/null || new+=("$service")
    done
    command -v dockerd >/dev/null || new+=(docker.service docker.socket)
    command -v containerd >/dev/null || new+=(containerd)
    # The lists of a fresh machine are empty or old: then they are fetched, and it is tried again.
    if ! apt-get install -y --no-install-recommends "$@" >"$log" 2>&1 </dev/null; then
        apt-get update >>"$log" 2>&1 </dev/null
        apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1 </dev/null || status=$?
    fi
    if command -v systemctl >/dev/null; then
        for service in "${new[@]}"; do systemctl --quiet disable "$service" >>"$log" 2>&1 || true; done
    fi
    exit "$status"
}
packages_switches_back() {
    rm -f "$policy" "$cluster/rowbell.conf"
    [ -z "$policy_saved" ] || mv "$policy_saved" "$policy"
    # The directory belongs to whoever made it; postgresql-common may have come meanwhile and then reads it.
    [ -z "$cluster_made" ] || rmdir --ignore-fail-on-non-empty "$cluster"
}

# ---- build ---------------------------------------------------------------------------------------------------------

# build NAME [MESON ARGUMENT...]: configures and builds in .rowbell/NAME, which is printed. One at a time. MESON
# ARGUMENTs are those of `meson setup`; CC counts when the directory is made; build_targets limits what is built.
programs=(relay/rowbell-relay dispatcher/rowbell-dispatcher gateway/rowbell-gateway cli/rowbell)
build_targets=()
build() {
    local directory=$state/$1 log=$state/$1.log
    shift
    mkdir -p "$state"
    exec 9>"$state/build.lock"
    flock 9
    # A build directory that was copied or moved with its checkout is of no use.
    if [ "$(cat "$directory/.rowbell-root" 2>/dev/null)" != "$root" ]; then rm -rf "$directory"; fi
    say "building (${directory#"$root"/})"
    if [ ! -e "$directory/build.ninja" ]; then
        rm -rf "$directory"
        if ! meson setup "$directory" "$root" "$@" >"$log" 2>&1 9>&-; then
            tail -40 "$log" >&2
            die "meson setup failed: $log"
        fi
        echo "$root" >"$directory/.rowbell-root"
    elif [ $# -gt 0 ]; then
        meson configure "$directory" "$@" >"$log" 2>&1 9>&- || die "meson configure failed: $log"
    fi
    if ! ninja -C "$directory" "${build_targets[@]}" >"$log" 2>&1 9>&-; then
        grep -E -A12 'error|ERROR|FAILED|warning' "$log" | head -120 >&2 || true
        die "the build failed: $log"
    fi
    exec 9>&-
    echo "$directory"
}

# ---- PostgreSQL and Redis ------------------------------------------------------------------------------------------

# Where initdb and postgres are: ROWBELL_PG_BIN, for the server of another version, else the newest that is installed.
pg_bin_find() {
    local directory=${ROWBELL_PG_BIN:-}
    [ -n "$directory" ] || directory=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -t/ -k5 -V | tail -1)
    if [ -x "$directory/initdb" ]; then
        echo "$directory"
    elif [ -n "${ROWBELL_PG_BIN:-}" ]; then
        die "ROWBELL_PG_BIN: there is no initdb in $ROWBELL_PG_BIN"
    elif command -v initdb >/dev/null; then
        dirname "$(command -v initdb)"
    else
        return 1
    fi
}

# PostgreSQL refuses to run as root. as_postgres COMMAND... runs as the user who may.
as_postgres() {
    if [ "$(id -u)" -eq 0 ]; then
        (cd / && exec runuser -u postgres -- "$@")
    else
        "$@"
    fi
}

# A port that nobody listens on, below those that the kernel gives to outgoing connections.
free_port() {
    python3 -ISc '
import random, socket
while True:
    port = random.randrange(20000, 32000)
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break'
}

# memory_place: a directory in memory, where there is room for a cluster that comes and goes.
memory_place() {
    local free
    [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && [ -w /dev/shm ] || return 0
    free=$(df -k --output=avail /dev/shm | tail -n 1)
    [ "$free" -lt 4194304 ] || [ "$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)" -lt 8388608 ] || echo /dev/shm
}

# pg_make DIRECTORY [PLACE]: a cluster at DIRECTORY/pg, which is a link to a directory in PLACE; without one, in /var/tmp where user
# postgres may not enter (a checkout below /root). The superuser is postgres; pg_start gives it a password, kept in
# DIRECTORY/pg-password.
pg_make() {
    local directory=$1 data=$1/pg place=${2:-} bin
    bin=$(pg_bin_find) || die "PostgreSQL is not installed (no initdb in /usr/lib/postgresql)"
    if [ -z "$place" ] && [ "$(id -u)" -eq 0 ] && ! as_postgres test -x "$directory"; then place=/var/tmp; fi
    if [ -n "$place" ]; then
        place=$(mktemp -d "$place/rowbell-pg.XXXXXX")
        ln -sfn "$place" "$data"
    else
        install -d -m 700 "$data"
    fi
    [ "$(id -u)" -ne 0 ] || chown postgres "$data/"
    if ! as_postgres "$bin/initdb" -D "$(readlink -f "$data")" -U postgres -E UTF8 --locale=C.UTF-8 --no-sync \
        --auth-local=trust --auth-host=scram-sha-256 >"$directory/initdb.log" 2>&1; then
        cat "$directory/initdb.log" >&2
        die "initdb failed"
    fi
}

# pg_start DIRECTORY [NAME=VALUE...]: starts the cluster with these settings and sets pg_port, pg_socket and pg_url (a URL
# without a database). The port of the last start is kept while it is free.
pg_start() {
    local directory=$1 data bin try options setting
    data=$(readlink -f "$directory/pg")
    bin=$(pg_bin_find)
    shift
    # Sockets have a path limit of 107 bytes, so not below the checkout. Only its owner may enter: local means trusted.
    pg_socket=$(mktemp -d /tmp/rowbell.XXXXXX)
    [ "$(id -u)" -ne 0 ] || chown postgres "$pg_socket"
    echo "$pg_socket" >"$directory/pg-socket"
    pg_port=$(cat "$directory/pg-port" 2>/dev/null || free_port)
    for try in 1 2 3 4 5; do
        options="-c listen_addresses=127.0.0.1 -c port=$pg_port -c unix_socket_directories=$pg_socket"
        options+=" -c log_timezone=UTC -c timezone=UTC -c log_min_messages=warning"
        for setting in "$@"; do options+=" -c $setting"; done
        if as_postgres "$bin/pg_ctl" -D "$data" -l "$data/server.log" -w -t 60 -o "$options" start \
            >"$directory/pg-start.log" 2>&1 7>&-; then
            echo "$pg_port" >"$directory/pg-port"
            [ -e "$directory/pg-password" ] || pg_set_password "$directory"
            pg_url="postgres://postgres:$(cat "$directory/pg-password")@127.0.0.1:$pg_port"
            return
        fi
        grep -q 'Address already in use' "$data/server.log" || break
        : >"$data/server.log"
        pg_port=$(free_port)
    done
    tail -20 "$data/server.log" >&2
    die "PostgreSQL did not start (try $try)"
}

pg_set_password() {
    local password
    password=$(python3 -ISc 'import secrets; print(secrets.token_hex(16))')
    pg_psql -c "alter role postgres password '$password'"
    (umask 077 && echo "$password" >"$1/pg-password")
}
pg_psql() { as_postgres psql -qXAt -v ON_ERROR_STOP=1 -h "$pg_socket" -p "$pg_port" -U postgres "$@"; }

# pg_stop DIRECTORY [MODE]: immediate throws work away, which is right for tests.
pg_stop() {
    local directory=$1 data bin
    data=$(readlink -f "$directory/pg") || return 0
    if [ -e "$data/postmaster.pid" ] && bin=$(pg_bin_find); then
        as_postgres "$bin/pg_ctl" -D "$data" -m "${2:-fast}" -w -t 60 stop >/dev/null 2>&1 || true
    fi
    [ ! -e "$directory/pg-socket" ] || rm -rf "$(cat "$directory/pg-socket")" "$directory/pg-socket"
}

pg_remove() {
    local data
    if data=$(readlink -f "$1/pg"); then rm -rf "$data" "$1/pg"; fi
}

# redis_start DIRECTORY: nothing is kept on disk, because nothing may depend on it (G9). Sets redis_url.
redis_start() {
    local directory=$1 port try
    command -v redis-server >/dev/null || die "redis-server is not installed"
    for try in 1 2 3 4 5; do
        port=$(cat "$directory/redis-port" 2>/dev/null || free_port)
        setsid redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$directory" \
            >"$directory/redis.log" 2>&1 </dev/null 7>&- &
        echo $! >"$directory/redis.pid"
        until grep -qs 'Ready to accept connections' "$directory/redis.log"; do
            kill -0 "$(cat "$directory/redis.pid")" 2>/dev/null || break
            sleep 0.02
        done
        if kill -0 "$(cat "$directory/redis.pid")" 2>/dev/null; then
            echo "$port" >"$directory/redis-port"
            redis_url=redis://127.0.0.1:$port
            return
        fi
        rm -f "$directory/redis-port"
    done
    tail -5 "$directory/redis.log" >&2
    die "Redis did not start (try $try)"
}

redis_stop() {
    local pid
    [ -e "$1/redis.pid" ] || return 0
    pid=$(cat "$1/redis.pid")
    if is_process "$pid" redis-; then
        kill "$pid" 2>/dev/null || true
        while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
    fi
    rm -f "$1/redis.pid"
}

# is_process PID WORD: that process lives and its command line has the word (a pid may have been given to another).
is_process() { [[ $(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline") == *"$2"* ]]; }

# migrate URL [ARGUMENT...]: by our own program.
migrate() {
    if [ -x "$build_directory/cli/rowbell" ]; then
        "$build_directory/cli/rowbell" migrate --database-url "$@"
    else
        local m=$root/migrations
        psql -qX -v ON_ERROR_STOP=1 "$1" -f "$m/roles.sql" -f "$m/bootstrap.sql" -c 'set role rowbell_owner' \
            -f "$m/0001_outbox.sql" $(printf -- '-f %s ' "$m"/functions/*.sql) -c 'reset role'
    fi
}

# node_find: Node 20 or newer. Debian 12 has 18, so npm brings one of its own (tests/package.json).
node_find() {
    local node
    for node in "$root"/tests/node_modules/node-linux-*/bin/node; do
        if [ -x "$node" ]; then
            echo "$node"
            return
        fi
    done
    command -v node
}

# npm_need: the packages of tests/package.json, once for each state of the lock file.
npm_need() {
    local stamp=$root/tests/node_modules/.rowbell-lock
    exec 8>"$state/npm.lock"
    flock 8
    if ! cmp -s "$root/tests/package-lock.json" "$stamp"; then
        say "installing npm packages (tests/package.json)"
        (cd "$root/tests" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error) >"$state/npm.log" 2>&1 8>&- || {
            tail -20 "$state/npm.log" >&2
            die "npm ci failed: $state/npm.log"
        }
        cp "$root/tests/package-lock.json" "$stamp"
    fi
    exec 8>&-
}
