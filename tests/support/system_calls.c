/* Fails or ends the process at the N-th system call on a file below some directory, for tests (LD_PRELOAD).

   Below every layer of ours, so that it also meets what does not go through timestone/files.py: SQLite's own calls for
   the catalogue, and Python's. `system_calls.py` builds and drives it; nothing is counted before `calls_arm`.

   What counts: with CHANGES, the calls that change the disk (opens that may create among them); with READS, those that
   read; with OPENS, every open and map. The N-th of them meets the fault, or every one from there on. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CHANGES = 1, READS = 2, OPENS = 4 };
enum { PASS, KILL, FAIL, SHORT, KILL_IN_THE_MIDDLE };

static char root[PATH_MAX];
static size_t root_length;
static int classes, armed, forever, action, number, error_number, count, traced = -1;

/* Let calls on files below `directory` count from now on, from one; the `nth` meets the fault. Each call that counts
   is written to the descriptor `trace` as a line, unless that is -1. */
void calls_arm(const char *directory, int which, int nth, int what, int error, int for_ever, int trace) {
    snprintf(root, sizeof root, "%s", directory);
    root_length = strlen(root);
    classes = which, number = nth, action = what, error_number = error, forever = for_ever, traced = trace, count = 0;
    __atomic_store_n(&armed, 1, __ATOMIC_SEQ_CST);
}

/* Nothing fails any more. */
void calls_disarm(void) { __atomic_store_n(&armed, 0, __ATOMIC_SEQ_CST); }

int calls_counted(void) { return count; }

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static ssize_t real_write(int fd, const void *bytes, size_t length) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return real(fd, bytes, length);
}

static int is_below(const char *path) {
    return path && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

/* What happens at a call of this class on this file. */
static int fault_of_path(int class, const char *call, const char *path) {
    int saved = errno, now;
    char line[PATH_MAX + 64];
    if (!__atomic_load_n(&armed, __ATOMIC_SEQ_CST) || !(classes & class) || !is_below(path)) return PASS;
    now = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (traced >= 0) {
        int length = snprintf(line, sizeof line, "%s %s\n", call, path + root_length);
        if (real_write(traced, line, length) < 0) return PASS;
    }
    errno = saved;
    if (forever ? now < number : now != number) return PASS;
    if (action == KILL) kill(getpid(), SIGKILL), pause();
    return action;
}

static int fault_of_fd(int class, const char *call, int fd) {
    char link[64], path[PATH_MAX];
    ssize_t length;
    int saved = errno;
    if (!__atomic_load_n(&armed, __ATOMIC_SEQ_CST) || !(classes & class)) return PASS;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0) return PASS;
    path[length] = 0;
    return fault_of_path(class, call, path);
}

/* A call that has no half: it fails, ends the process, or happens. */
#define WHOLE(fault) \
    do { \
        int met = (fault); \
        if (met == KILL_IN_THE_MIDDLE) kill(getpid(), SIGKILL), pause(); \
        if (met == FAIL) { errno = error_number; return -1; } \
    } while (0)

/* A write: half of it may happen. */
#define HALVED(fault, half) \
    do { \
        int met = (fault); \
        if (met == KILL_IN_THE_MIDDLE) { if ((half) < 0) {} kill(getpid(), SIGKILL), pause(); } \
        if (met == SHORT) return (half); \
        if (met == FAIL) { errno = error_number; return -1; } \
    } while (0)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        mode_t mode = 0; \
        va_list rest; \
        va_start(rest, flags); \
        if (flags & O_CREAT) mode = va_arg(rest, mode_t); \
        va_end(rest); \
        if (flags & O_CREAT) WHOLE(fault_of_path(classes & CHANGES ? CHANGES : OPENS, "create", path)); \
        else WHOLE(fault_of_path(OPENS, "open", path)); \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define PWRITE(name, position_type) \
    ssize_t name(int fd, const void *bytes, size_t length, position_type position) { \
        REAL(ssize_t, #name, int, const void *, size_t, position_type); \
        HALVED(fault_of_fd(CHANGES, "pwrite", fd), real(fd, bytes, length / 2, position)); \
        return real(fd, bytes, length, position); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *bytes, size_t length) {
    HALVED(fault_of_fd(CHANGES, "write", fd), real_write(fd, bytes, length / 2));
    return real_write(fd, bytes, length);
}

ssize_t writev(int fd, const struct iovec *pieces, int piece_count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    WHOLE(fault_of_fd(CHANGES, "writev", fd));
    return real(fd, pieces, piece_count);
}

/* Half of it is the first pieces, or half of the only one. */
#define PWRITEV(name, position_type) \
    ssize_t name(int fd, const struct iovec *pieces, int piece_count, position_type position) { \
        REAL(ssize_t, #name, int, const struct iovec *, int, position_type); \
        struct iovec first = *pieces; \
        first.iov_len /= 2; \
        HALVED(fault_of_fd(CHANGES, "pwritev", fd), \
               real(fd, piece_count > 1 ? pieces : &first, piece_count > 1 ? piece_count / 2 : 1, position)); \
        return real(fd, pieces, piece_count, position); \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

#define PREAD(name, position_type) \
    ssize_t name(int fd, void *bytes, size_t length, position_type position) { \
        REAL(ssize_t, #name, int, void *, size_t, position_type); \
        WHOLE(fault_of_fd(READS, "pread", fd)); \
        return real(fd, bytes, length, position); \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

ssize_t read(int fd, void *bytes, size_t length) {
    REAL(ssize_t, "read", int, void *, size_t);
    WHOLE(fault_of_fd(READS, "read", fd));
    return real(fd, bytes, length);
}

#define ON_FD(name) \
    int name(int fd) { \
        REAL(int, #name, int); \
        WHOLE(fault_of_fd(CHANGES, #name, fd)); \
        return real(fd); \
    }
ON_FD(fsync)
ON_FD(fdatasync)

#define FTRUNCATE(name, size_type) \
    int name(int fd, size_type size) { \
        REAL(int, #name, int, size_type); \
        WHOLE(fault_of_fd(CHANGES, "ftruncate", fd)); \
        return real(fd, size); \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

/* Returns the number of the error, and leaves errno alone. */
#define FALLOCATE(name, size_type) \
    int name(int fd, size_type start, size_type length) { \
        REAL(int, #name, int, size_type, size_type); \
        int met = fault_of_fd(CHANGES, "fallocate", fd); \
        if (met == KILL_IN_THE_MIDDLE) kill(getpid(), SIGKILL), pause(); \
        if (met == FAIL) return error_number; \
        return real(fd, start, length); \
    }
FALLOCATE(posix_fallocate, off_t)
FALLOCATE(posix_fallocate64, off64_t)

int rename(const char *source, const char *target) {
    REAL(int, "rename", const char *, const char *);
    WHOLE(fault_of_path(CHANGES, "rename", target));
    return real(source, target);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    WHOLE(fault_of_path(CHANGES, "unlink", path));
    return real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    WHOLE(fault_of_path(CHANGES, "mkdir", path));
    return real(path, mode);
}

#define MMAP(name, position_type) \
    void *name(void *at, size_t length, int protection, int flags, int fd, position_type position) { \
        REAL(void *, #name, void *, size_t, int, int, int, position_type); \
        int met = fd < 0 ? PASS : fault_of_fd(OPENS, "map", fd); \
        if (met == KILL_IN_THE_MIDDLE) kill(getpid(), SIGKILL), pause(); \
        if (met == FAIL) { errno = error_number; return MAP_FAILED; } \
        return real(at, length, protection, flags, fd, position); \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)
