// application: a foreign application, for guest.sh: clients that read and write as programs with an ORM do, each on a
// connection of its own, until SIGTERM. SLOW of them keep their transactions open for two seconds. Then it prints how
// many statements there were, how many failed (each is told on stderr) and what the slowest took: "statements=81234
// failed=0 slowest_ms=412 slowest=commit". It knows nothing of Rowbell. Tables: guest.sh.
#include <libpq-fe.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_CLIENTS = 64, MOST_STATEMENTS = 8, ROWS = 1000 };

// One is chosen at random, again and again. $1 is a row's number.
static const char *const transactions[][MOST_STATEMENTS] = {
    {"select count(*) from posts where tenant = 't' || $1::int % 10"},
    {"select p.*, (select count(*) from comments c where c.post_id = p.id) from posts p where p.id = $1::int"},
    {"select o.* from orders o where o.id = $1::int"},
    {"insert into posts (tenant, title) values ('t' || $1::int % 10, 'title') returning id, tenant, title"},
    {"insert into orders (id, placed, total) values ($1::int, date '2026-01-01' + $1::int % 60, 1) on conflict (id, "
     "placed) "
     "do update set total = orders.total + 1 returning total"},
    {"update posts set title = 'title ' || $1::int, seen = seen + 1 where id = $1::int returning id"},
    {"begin", "select * from posts where id = $1::int", "savepoint active_record_1",
     "update posts set title = title || '.' where id = $1::int", "release savepoint active_record_1",
     "insert into comments (post_id, body) values ($1::int, 'body') returning id", "commit"},
    {"begin", "savepoint s", "insert into comments (post_id, body) values (null, 'refused')", "rollback to savepoint s",
     "delete from comments where id = (select id from comments where post_id = $1::int order by id limit 1)", "commit"},
    {"begin isolation level repeatable read", "select count(*) from comments where post_id < $1::int",
     "update posts set deleted_at = case when deleted_at is null then now() end where id = $1::int and tenant = 'none'",
     "rollback"},
};
// A report and a batch.
static const char two_seconds[] = "(two seconds)";
static const char *const slow_transactions[][MOST_STATEMENTS] = {
    {"begin", "select count(*) from posts", "select count(*) from orders", "select count(*) from comments", two_seconds,
     "commit"},
    {"begin", "insert into posts (tenant, title) values ('batch', $1)",
     "insert into comments (post_id, body) values ($1::int, 'batch')",
     ("insert into orders (id, placed, total) select (extract(epoch from clock_timestamp()) * 1000)::bigint % "
      "1000000000 + 1000, '2026-02-02', 1"),
     two_seconds, "commit"},
};
static const char expected_refusal[] = "23502"; // of the second statement of a transaction above

static const char *url;
static int slow_clients;
static atomic_bool stopping;
static atomic_long statements, failed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double slowest_ms;
static const char *slowest = "-";

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static PGconn *connect_client(void) {
    PGconn *conn = PQconnectdb(url);
    if (PQstatus(conn) == CONNECTION_OK)
        return conn;
    fprintf(stderr, "connect: %s", PQerrorMessage(conn));
    failed++;
    PQfinish(conn);
    return NULL;
}

static bool run(PGconn *conn, const char *sql, const char *row) {
    double began_ms = now_ms();
    PGresult *result = strchr(sql, '$') ? PQexecParams(conn, sql, 1, NULL, &row, NULL, NULL, 0) : PQexec(conn, sql);
    double took_ms = now_ms() - began_ms;
    ExecStatusType status = PQresultStatus(result);
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ||
                (sqlstate && strcmp(sqlstate, expected_refusal) == 0);
    if (!good)
        fprintf(stderr, "%s: %s", sql, PQresultErrorMessage(result));
    PQclear(result);
    statements++;
    failed += !good;
    pthread_mutex_lock(&lock);
    if (took_ms > slowest_ms) {
        slowest_ms = took_ms;
        slowest = sql;
    }
    pthread_mutex_unlock(&lock);
    return good;
}

static void wait_ms(int ms) {
    for (; ms > 0 && !stopping; ms -= 50)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

static void *client(void *arg) {
    unsigned seed = *(unsigned *)arg;
    bool slow = (int)seed <= slow_clients;
    PGconn *conn = connect_client();
    while (conn && !stopping) {
        unsigned choice = (unsigned)rand_r(&seed);
        const char *const *transaction =
            slow ? slow_transactions[choice % (sizeof slow_transactions / sizeof *slow_transactions)]
                 : transactions[choice % (sizeof transactions / sizeof *transactions)];
        char row[16];
        snprintf(row, sizeof row, "%d", rand_r(&seed) % ROWS + 1);
        bool good = true;
        for (int i = 0; good && i < MOST_STATEMENTS && transaction[i]; i++) {
            if (transaction[i] == two_seconds)
                wait_ms(2000);
            else
                good = run(conn, transaction[i], row);
        }
        if (slow)
            wait_ms(1500);
        if (!good && PQtransactionStatus(conn) != PQTRANS_IDLE)
            PQclear(PQexec(conn, "rollback"));
        if (PQstatus(conn) != CONNECTION_OK) {
            PQfinish(conn);
            conn = connect_client();
        }
    }
    PQfinish(conn);
    return NULL;
}

int main(int argc, char **argv) {
    int count = argc == 4 ? atoi(argv[2]) : 0;
    if (count < 1 || count > MOST_CLIENTS) {
        fprintf(stderr, "guest-application URL CLIENTS SLOW\n");
        return 2;
    }
    url = argv[1];
    slow_clients = atoi(argv[3]);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); // the clients' threads, too
    pthread_t threads[MOST_CLIENTS];
    unsigned seeds[MOST_CLIENTS];
    int signal;
    for (int i = 0; i < count; i++) {
        seeds[i] = (unsigned)i + 1;
        if (pthread_create(&threads[i], NULL, client, &seeds[i]) != 0)
            abort();
    }
    sigwait(&signals, &signal);
    stopping = true;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("statements=%ld failed=%ld slowest_ms=%.0f slowest=%s\n", statements, failed, slowest_ms, slowest);
    return failed > 0;
}
