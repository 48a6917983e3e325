/* Sockets, and which of them are ready, in the few words that the kernel needs. Where there is no epoll, nothing is ever
 * watched: `mqtt_front/kernel/loops.py` asks for it on Linux only. */
#ifndef TIMESTONE_SOCKETS_H
#define TIMESTONE_SOCKETS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __linux__

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define POLL_BATCH 64

static int poll_open(void) { return epoll_create1(EPOLL_CLOEXEC); }

static void poll_close(int poll)
{
    if (poll >= 0)
        close(poll);
}

static int poll_watch(int poll, int fd, uint64_t key)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = key};
    return epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
}

static int poll_forget(int poll, int fd)
{
    struct epoll_event event = {0}; /* before Linux 2.6.9 it must not be missing */
    return epoll_ctl(poll, EPOLL_CTL_DEL, fd, &event);
}

/* The keys of up to `count` sockets, at most POLL_BATCH, that are ready by now. */
static int poll_ready(int poll, uint64_t *keys, int count)
{
    struct epoll_event events[POLL_BATCH];
    int found = epoll_wait(poll, events, count < POLL_BATCH ? count : POLL_BATCH, 0);
    for (int number = 0; number < found; number++)
        keys[number] = events[number].data.u64;
    return found;
}

static ptrdiff_t socket_receive(int fd, void *data, size_t size) { return recv(fd, data, size, MSG_DONTWAIT); }

static ptrdiff_t socket_send(int fd, const void *data, size_t size)
{
    return send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

#else

static int unsupported(void)
{
    errno = ENOSYS;
    return -1;
}

static int poll_open(void) { return unsupported(); }
static void poll_close(int poll) { (void)poll; }
static int poll_watch(int poll, int fd, uint64_t key) { (void)poll, (void)fd, (void)key; return unsupported(); }
static int poll_forget(int poll, int fd) { (void)poll, (void)fd; return unsupported(); }
static int poll_ready(int poll, uint64_t *keys, int count) { (void)poll, (void)keys, (void)count; return unsupported(); }
static ptrdiff_t socket_receive(int fd, void *data, size_t size) { (void)fd, (void)data, (void)size; return unsupported(); }
static ptrdiff_t socket_send(int fd, const void *data, size_t size) { (void)fd, (void)data, (void)size; return unsupported(); }

#endif
#endif
