#include "tests/support/pgbouncer.h"
#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void run(const char *config) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    if (geteuid() == 0) // it refuses to be root
        execlp("setpriv", "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL",
               "pgbouncer", config, NULL);
    execlp("pgbouncer", "pgbouncer", config, NULL);
    _exit(127);
}

static bool answers(void *arg) {
    PGconn *conn = PQconnectdb(arg);
    bool up = PQstatus(conn) == CONNECTION_OK;
    PQfinish(conn);
    return up;
}

const char *pgbouncer_start(const char *pool_mode, int pool_size) {
    const PGconn *database = fixture_connect();
    int port = support_port();
    char path[] = "/tmp/rowbell-pgbouncer-XXXXXX";
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    dprintf(file,
            "[databases]\n* = host=%s port=%s user=%s%s%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"
            "auth_type = any\npool_mode = %s\ndefault_pool_size = %d\nmax_client_conn = 200\nunix_socket_dir =\n",
            PQhost(database), PQport(database), PQuser(database), *PQpass(database) ? " password=" : "",
            PQpass(database), port, pool_mode, pool_size);
    fchmod(file, 0644);
    close(file);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        run(path);
    char *url = NULL;
    ck_assert_int_gt(asprintf(&url, "postgres://%s@127.0.0.1:%d/%s", PQuser(database), port, PQdb(database)), 0);
    support_keep(url);
    wait_for(answers, url, 10000, "the pooler answers");
    unlink(path);
    return url;
}
