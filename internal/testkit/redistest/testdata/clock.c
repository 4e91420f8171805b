/* Shifts the clock of the program it is preloaded into by as many microseconds
 * as stand in the file that REDISTEST_CLOCK names, which a test may change. If a
 * second number follows, the clock stands still there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *set; /* the shift, and where the clock stands still; 0: it does not */

__attribute__((constructor)) static void open_clock(void) {
	const char *name = getenv("REDISTEST_CLOCK");
	int fd = name ? open(name, O_RDONLY) : -1;
	if (fd >= 0) {
		void *p = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED) set = p;
	}
}

static int64_t shifted(int64_t us) {
	int64_t stopped = set ? set[1] : 0;
	return stopped ? stopped : set ? us + set[0] : us;
}

int gettimeofday(struct timeval *tv, void *tz) {
	static int (*real)(struct timeval *, void *);
	if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
	int r = real(tv, tz);
	int64_t us = shifted((int64_t)tv->tv_sec * 1000000 + tv->tv_usec);
	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return r;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	static int (*real)(clockid_t, struct timespec *);
	if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
	int r = real(id, ts);
	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) {
		int64_t ns = ts->tv_nsec % 1000;
		int64_t us = shifted((int64_t)ts->tv_sec * 1000000 + ts->tv_nsec / 1000);
		ts->tv_sec = us / 1000000;
		ts->tv_nsec = us % 1000000 * 1000 + ns;
	}
	return r;
}
