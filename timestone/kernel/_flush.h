/* Threads that flush files, without the interpreter: the beginning and the end of a flush wake no thread of Python, and
   take no interpreter lock. Up to eight of them, started on demand, serve one queue. */

#ifndef TIMESTONE_FLUSH_H
#define TIMESTONE_FLUSH_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#define FLUSH_THREADS 8 /* waiting for a disk takes no processor time, so these are enough for many logs */

struct flush {
    int fds[2];
    int count, taken, left; /* files: all, those that a thread has taken, those that are not flushed yet */
    int error, error_fd;    /* errno of a file that could not be flushed, and which one; 0 */
    int wake_fd;            /* gets eight bytes at the end; -1 for none */
    int process;            /* number of forks above the process that began it */
    struct flush *next;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wanted, ended;
    struct flush *first, *last;
    int threads, idle; /* idle: those that wait and have not been woken */
    int process;
} flushes = {.lock = PTHREAD_MUTEX_INITIALIZER, .wanted = PTHREAD_COND_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

/* Flush a file of the first flush in the queue. The lock is held but for that time. */
static void flush_next(void)
{
    struct flush *flush = flushes.first;
    int fd = flush->fds[flush->taken++];
    if (flush->taken == flush->count && (flushes.first = flush->next) == NULL)
        flushes.last = NULL;
    pthread_mutex_unlock(&flushes.lock);
    int error = fdatasync(fd) == 0 ? 0 : errno;
    pthread_mutex_lock(&flushes.lock);
    if (error != 0) {
        flush->error = error;
        flush->error_fd = fd;
    }
    if (--flush->left == 0) {
        uint64_t one = 1;
        if (flush->wake_fd >= 0 && write(flush->wake_fd, &one, sizeof one) < 0) {
            /* The descriptor is full, so that its reader is woken anyway. */
        }
        pthread_cond_broadcast(&flushes.ended);
    }
}

static void *flush_thread(void *nothing)
{
    pthread_mutex_lock(&flushes.lock);
    for (;;) {
        if (flushes.first == NULL) {
            flushes.idle++;
            do
                pthread_cond_wait(&flushes.wanted, &flushes.lock);
            while (flushes.first == NULL);
        }
        flush_next();
    }
    return nothing;
}

static void flush_start_thread(void)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads of Python */
    if (pthread_create(&thread, NULL, flush_thread, NULL) == 0) {
        pthread_detach(thread);
        flushes.threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Begin a flush, which has to stay where it is until it has ended. Return -1 if no thread can be started. */
static int flush_begin(struct flush *flush)
{
    int woken = 0;
    pthread_mutex_lock(&flushes.lock);
    flush->process = flushes.process;
    for (int number = 0; number < flush->count; number++) {
        if (flushes.idle > 0) {
            flushes.idle--;
            woken++;
        } else if (flushes.threads < FLUSH_THREADS) {
            flush_start_thread();
        }
    }
    int can = flushes.threads > 0;
    if (can) {
        *(flushes.last == NULL ? &flushes.first : &flushes.last->next) = flush;
        flushes.last = flush;
    }
    pthread_mutex_unlock(&flushes.lock);
    while (woken-- > 0) /* a thread that is woken under the lock waits for it at once */
        pthread_cond_signal(&flushes.wanted);
    return can ? 0 : -1;
}

/* Return whether a flush has ended; wait for it if asked to. That of a parent does not end in a forked child. */
static int flush_has_ended(struct flush *flush, int wait)
{
    pthread_mutex_lock(&flushes.lock);
    while (wait && flush->left > 0 && flush->process == flushes.process)
        pthread_cond_wait(&flushes.ended, &flushes.lock);
    int has_ended = flush->left == 0;
    pthread_mutex_unlock(&flushes.lock);
    return has_ended;
}

/* For a forked child, in which the threads do not exist. */
static void flush_forked(void)
{
    pthread_mutex_init(&flushes.lock, NULL);
    pthread_cond_init(&flushes.wanted, NULL);
    pthread_cond_init(&flushes.ended, NULL);
    flushes.first = flushes.last = NULL;
    flushes.threads = flushes.idle = 0;
    flushes.process++;
}

#endif
