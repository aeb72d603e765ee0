#include "tests/support/support.h"
#include <arpa/inet.h>
#include <check.h>
#include <sys/socket.h>
#include <unistd.h>

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
    } while (bind(fd, (struct sockaddr *)&address, sizeof address) != 0);
    close(fd);
    return FIRST + next;
}
