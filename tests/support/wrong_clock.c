/* A wall clock that is wrong by as many seconds as the file in WRONG_CLOCK has at the time, for tests (LD_PRELOAD).

   Clocks that only measure time stay right, as on a machine whose wall clock is set: libfaketime 0.9.10 breaks sleeps
   until a time of those. `wrong_clock.py` builds it, and writes the file: one number of eight bytes. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *wrong_s;

__attribute__((constructor)) static void map_the_file(void) {
    const char *path = getenv("WRONG_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *wrong_s, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        abort();
    close(file);
    wrong_s = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += wrong_s ? *wrong_s : 0;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec, now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *stored) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (stored)
        *stored = found.tv_sec;
    return found.tv_sec;
}
