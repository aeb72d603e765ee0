#include "tests/support/support.h"
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// Between the look and the use of a port another test may look: whoever has the socket of this name has the port, until
// its process ends.
static bool reserve(int port) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "rowbell-test-port-%d", port) + 1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    if (bind(fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length)) == 0)
        return true;
    close(fd);
    return false;
}

int support_port(void) {
    enum { FIRST = 12000, RANGE = 20000 };
    static int next;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    next = next == 0 ? getpid() * 16 % RANGE : next;
    do {
        next = (next + 1) % RANGE;
        address.sin_port = htons((uint16_t)(FIRST + next));
    } while (!reserve(FIRST + next) || bind(fd, (struct sockaddr *)&address, sizeof address) != 0);
    close(fd);
    return FIRST + next;
}
