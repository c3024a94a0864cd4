// A static program that knows nothing of proxies: asks a redis server over a plain socket. Arguments: host, port.
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (argc != 3) return 2;
    int error = getaddrinfo(argv[1], argv[2], &hints, &found);
    if (error) return fprintf(stderr, "%s: %s\n", argv[1], gai_strerror(error)), 3;
    for (; found; found = found->ai_next) {
        int fd = socket(found->ai_family, found->ai_socktype, 0);
        if (fd < 0) continue;
        if (connect(fd, found->ai_addr, found->ai_addrlen)) {
            close(fd);
            continue;
        }
        const char ask[] = "PING\r\nECHO hello\r\nQUIT\r\n";
        if (write(fd, ask, sizeof ask - 1) != sizeof ask - 1) return perror("write"), 4;
        char answer[512];
        size_t have = 0;
        ssize_t got;
        while (have < sizeof answer && (got = read(fd, answer + have, sizeof answer - have)) > 0) have += got;
        if (got < 0) return perror("read"), 5;
        fwrite(answer, 1, have, stdout);
        return have ? 0 : 6;
    }
    perror("connect");
    return 7;
}
