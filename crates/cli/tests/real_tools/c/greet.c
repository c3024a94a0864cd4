#include "greet.h"
#include "count.h"
#include <stdio.h>

void greet(const char *name) {
    printf("Hello, %s (%d)\n", name, count(name));
}
