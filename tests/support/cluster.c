#include "tests/support/cluster.h"
#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_CLUSTERS = 8, MAX_CONNECTIONS = 16 };

struct cluster {
    int port;
    char directory[64];
    pid_t postmaster; // 0: not running
    PGconn *connections[MAX_CONNECTIONS];
    int connection_count;
};

static struct cluster clusters[MAX_CLUSTERS];
static int cluster_count;

// ---- running PostgreSQL's programs ----

// PostgreSQL does not run as root.
static void become_postgres(void) {
    const struct passwd *user = geteuid() == 0 ? getpwnam("postgres") : NULL;
    if (user && (setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0)) {
        _exit(126);
    }
}

// ROWBELL_PG_BIN: the server of another version (dev/lib.sh). It may have come without clients.
static const char *program_path(const char *program) {
    static char directory[256];
    const char *chosen = getenv("ROWBELL_PG_BIN");
    char *path = NULL;
    if (chosen && asprintf(&path, "%s/%s", chosen, program) > 0 && access(path, X_OK) == 0)
        return support_keep(path);
    free(path);
    if (directory[0] == '\0') {
        FILE *pipe = popen("pg_config --bindir", "r");
        ck_assert_ptr_nonnull(pipe);
        ck_assert_ptr_nonnull(fgets(directory, sizeof directory, pipe));
        pclose(pipe);
        directory[strcspn(directory, "\n")] = '\0';
    }
    ck_assert_int_gt(asprintf(&path, "%s/%s", directory, program), 0);
    return support_keep(path);
}

static pid_t program_start(const char *log, char *const argv[], int death_signal) {
    const char *path = program_path(argv[0]);
    pid_t test = getpid();
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0) {
        return pid;
    }
    become_postgres();
    prctl(PR_SET_PDEATHSIG, death_signal); // after the change of user, which clears it
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    // Each of them finds the others by its own path. Where we are, in a checkout below /root, postgres may not be.
    char *arguments[32] = {(char *)path};
    for (size_t i = 1; i < sizeof arguments / sizeof arguments[0] - 1 && argv[i]; i++) {
        arguments[i] = argv[i];
    }
    if (chdir("/") == 0 && getppid() == test) {
        execv(path, arguments);
    }
    _exit(127);
}

static void program_end(pid_t pid, const char *what, const char *log) {
    int status = support_wait_child(pid, HANG_MS, what);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s failed; see %s", what, log);
}
#define RUN(cluster, ...) run((cluster), (char *const[]){__VA_ARGS__, NULL})
static void run(const struct cluster *cluster, char *const argv[]) {
    char log[100];
    snprintf(log, sizeof log, "%s/log", cluster->directory);
    program_end(program_start(log, argv, SIGKILL), argv[0], log);
}

// ---- making and removing ----

static void prefix_of(pid_t test, char *ret_prefix, size_t size) {
    const char *place = getenv("ROWBELL_TEST_PLACE"); // in memory, where there is room
    snprintf(ret_prefix, size, "%s/rowbell-cluster-%d-", place != NULL ? place : "/tmp", (int)test);
}

// A failed test runs no code of its own at its end. This process outlives it: when the pipe closes, the test is gone
// and its servers are going.
static void start_the_remover(void) {
    int ends[2];
    char prefix[60];
    char command[300];
    prefix_of(getpid(), prefix, sizeof prefix);
    snprintf(command, sizeof command,
             "read -r _; for try in 1 2 3 4 5 6 7 8 9; do rm -rf %s* 2>/dev/null && exit; sleep 1; done", prefix);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0) {
        close(ends[0]);
        return; // the other end is held open for as long as we live
    }
    setsid(); // Check kills the test's group
    dup2(ends[0], STDIN_FILENO);
    int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execl("/bin/sh", "sh", "-c", command, NULL);
    _exit(127);
}

struct cluster *cluster_new(void) {
    ck_assert_int_lt(cluster_count, MAX_CLUSTERS);
    if (cluster_count == 0) {
        start_the_remover();
    }
    struct cluster *cluster = &clusters[cluster_count];
    *cluster = (struct cluster){.port = support_port()};
    prefix_of(getpid(), cluster->directory, sizeof cluster->directory - 4);
    snprintf(cluster->directory + strlen(cluster->directory), 4, "%d", cluster_count++);
    ck_assert_int_eq(mkdir(cluster->directory, 0700), 0);
    const struct passwd *user = geteuid() == 0 ? getpwnam("postgres") : NULL;
    if (user) {
        ck_assert_int_eq(chown(cluster->directory, user->pw_uid, user->pw_gid), 0);
    }
    return cluster;
}

int cluster_port(const struct cluster *cluster) {
    return cluster->port;
}

static char *data_path(const struct cluster *cluster) {
    char *path = NULL;
    ck_assert_int_gt(asprintf(&path, "%s/data", cluster->directory), 0);
    return support_keep(path);
}

static char *url_of(const struct cluster *cluster) {
    char *url = NULL;
    ck_assert_int_gt(asprintf(&url, "postgresql://postgres@127.0.0.1:%d/postgres?connect_timeout=5", cluster->port), 0);
    return support_keep(url);
}

static void wait_answers(struct cluster *cluster) {
    const char *url = url_of(cluster);
    uint64_t end = support_now_ms() + HANG_MS;
    while (PQping(url) != PQPING_OK) {
        ck_assert_msg(support_now_ms() < end, "PostgreSQL on port %d does not answer; see %s/log", cluster->port,
                      cluster->directory);
        support_pause();
    }
}

static void server_start(struct cluster *cluster) {
    char log[100];
    char port[16];
    snprintf(log, sizeof log, "%s/log", cluster->directory);
    snprintf(port, sizeof port, "%d", cluster->port);
    char *const argv[] = {"postgres", "-D", data_path(cluster), "-p", port, NULL};
    cluster->postmaster = program_start(log, argv, SIGQUIT);
    wait_answers(cluster);
}

void cluster_start_primary(struct cluster *cluster) {
    RUN(cluster, "initdb", "-D", data_path(cluster), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N");
    char *path = NULL;
    ck_assert_int_gt(asprintf(&path, "%s/postgresql.auto.conf", data_path(cluster)), 0);
    FILE *file = fopen(support_keep(path), "a");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\nfull_page_writes = off\n"
                  "max_connections = 60\nshared_buffers = 16MB\nwal_level = replica\nmax_wal_senders = 6\n"
                  "wal_keep_size = 64MB\nhot_standby = on\nautovacuum = off\nwal_retrieve_retry_interval = 200ms\n");
    fclose(file);
    server_start(cluster);
}

void cluster_start_standby(struct cluster *cluster, const struct cluster *primary) {
    RUN(cluster, "pg_basebackup", "-d", url_of(primary), "-D", data_path(cluster), "-R", "-X", "stream", "-c", "fast",
        "--no-sync");
    server_start(cluster);
}

PGconn *cluster_connect(struct cluster *cluster) {
    ck_assert_int_lt(cluster->connection_count, MAX_CONNECTIONS);
    PGconn *conn = PQconnectdb(url_of(cluster));
    ck_assert_msg(PQstatus(conn) == CONNECTION_OK, "%s", PQerrorMessage(conn));
    PQclear(PQexec(conn, "set client_min_messages = warning"));
    cluster->connections[cluster->connection_count++] = conn;
    return conn;
}

// ---- replication ----

static PGconn *connection(struct cluster *cluster) {
    return cluster->connection_count > 0 ? cluster->connections[0] : cluster_connect(cluster);
}

void cluster_wait_caught_up(struct cluster *standby, struct cluster *primary) {
    char sql[200];
    snprintf(sql, sizeof sql, "select pg_last_wal_replay_lsn() >= '%s'",
             sql_text(connection(primary), "select pg_current_wal_flush_lsn()"));
    sql_wait(connection(standby), HANG_MS, sql);
}

void cluster_detach(struct cluster *standby) {
    PGconn *conn = connection(standby);
    sql_run(conn, "alter system set primary_conninfo = ''");
    sql_run(conn, "select pg_reload_conf()");
    sql_wait(conn, HANG_MS, "select not exists (select from pg_stat_wal_receiver)");
}

void cluster_promote(struct cluster *standby) {
    sql_run(connection(standby), "select pg_promote(true, 60)");
    sql_wait(connection(standby), HANG_MS, "select not pg_is_in_recovery()");
}

static void server_stop(struct cluster *cluster, int signal) {
    for (int i = 0; i < cluster->connection_count; i++) {
        PQfinish(cluster->connections[i]);
    }
    cluster->connection_count = 0;
    kill(cluster->postmaster, signal);
    support_wait_child(cluster->postmaster, HANG_MS, "PostgreSQL");
    cluster->postmaster = 0;
}

void cluster_kill(struct cluster *cluster) {
    server_stop(cluster, SIGQUIT);
}

void cluster_shut_down(struct cluster *cluster) {
    server_stop(cluster, SIGINT);
}

void cluster_start_again(struct cluster *cluster) {
    ck_assert_int_eq(cluster->postmaster, 0);
    server_start(cluster);
}

const char *clusters_url(struct cluster *const *list, int count, const char *target_session_attrs) {
    char *url = strdup("postgresql://postgres@");
    for (int i = 0; i < count; i++) {
        char *longer = NULL;
        ck_assert_int_gt(asprintf(&longer, "%s%s127.0.0.1:%d", url, i == 0 ? "" : ",", list[i]->port), 0);
        free(url);
        url = longer;
    }
    char *whole = NULL;
    ck_assert_int_gt(asprintf(&whole, "%s/postgres?target_session_attrs=%s", url, target_session_attrs), 0);
    free(url);
    return support_keep(whole);
}
