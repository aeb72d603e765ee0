// cluster: PostgreSQL servers of a test's own, for what a database cloned in the common server cannot show: streaming
// replication, failover, switchover. They die with the test's process; their files go at its exit.
#pragma once
#include <libpq-fe.h>
#include <stdbool.h>

struct cluster;

// A port is chosen now, so that URLs can name servers that do not exist yet. Nothing runs.
struct cluster *cluster_new(void);
int cluster_port(const struct cluster *cluster);
void cluster_start_primary(struct cluster *cluster); // initdb, start
// A copy of the primary that streams from it, started.
void cluster_start_standby(struct cluster *cluster, const struct cluster *primary);
PGconn *
cluster_connect(struct cluster *cluster); // superuser on database postgres; closed at the end, or with the server
// The standby has everything that the primary had when this was called.
void cluster_wait_caught_up(struct cluster *standby, struct cluster *primary);
void cluster_detach(struct cluster *standby);      // it receives nothing from now on
void cluster_promote(struct cluster *standby);     // returns when it takes writes
void cluster_kill(struct cluster *cluster);        // as by a power failure
void cluster_shut_down(struct cluster *cluster);   // fast: what was committed reaches the standbys first
void cluster_start_again(struct cluster *cluster); // after one of these
// "postgresql://postgres@127.0.0.1:1,127.0.0.1:2/postgres?target_session_attrs=read-write": whichever takes writes.
const char *clusters_url(struct cluster *const *clusters, int count, const char *target_session_attrs);
