#include "count.h"
#include "greet.h"
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc != 2 || count(argv[1]) == 0) {
        fprintf(stderr, "usage: app NAME\n");
        return 2;
    }
    greet(argv[1]);
    return 0;
}
