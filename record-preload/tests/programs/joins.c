/* Joins of threads with every outcome that one program can bring about. Each is said on a line when it is over:
   `HOW thread-id = answer`, with HOW: `waits`, `at-once`, `gives-up` (a wait that ends without the thread), `refused` (no wait). */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include "asleep.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* The last thread, once it ends or joins. */
static atomic_int tid;
/* Who joins the last thread, which ends when this sleeps; -1 if it ends without that. */
static atomic_int joiner;

static struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_nsec += ms * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

#define SAY(how, thread, call) \
	do { \
		errno = 77; \
		long said_ = (long)(call); \
		printf("%s %lu = %ld %d\n", how, (unsigned long)(thread), said_, errno); \
	} while (0)

static int own_tid(void)
{
	return (int)syscall(SYS_gettid);
}

static void until_joined(void)
{
	while (joiner == 0 || (joiner > 0 && !is_asleep(joiner)))
		usleep(200);
}

/* Joins; the thread ends when this sleeps. */
#define WAITING(join) (joiner = own_tid(), join)

/* Locks once, so that it is recorded, and ends when it is joined. */
static void *lasts(void *value)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	until_joined();
	tid = own_tid();
	return value;
}

static int lasts_c11(void *value)
{
	return (int)(long)lasts(value) + 1;
}

static pthread_t start(void *(*function)(void *), void *argument)
{
	pthread_t thread;
	tid = joiner = 0;
	if (pthread_create(&thread, NULL, function, argument) != 0)
		_exit(9);
	return thread;
}

/* Lets the last thread end, and waits until it is gone. */
static void gone(void)
{
	joiner = -1;
	while (tid == 0 || syscall(SYS_tgkill, getpid(), (int)tid, 0) == 0)
		usleep(100);
}

static void *joins_forever(void *thread)
{
	tid = own_tid();
	pthread_join((pthread_t)thread, NULL);
	return NULL;
}

static void *joins_itself(void *unused)
{
	SAY("refused", pthread_self(), pthread_join(pthread_self(), NULL));
	tid = own_tid();
	return unused;
}

static void *never_locks(void *unused)
{
	until_joined();
	return unused;
}

int main(void)
{
	struct timespec soon;
	void *value = NULL;
	pthread_t thread = start(lasts, (void *)30);
	SAY("refused", thread, pthread_tryjoin_np(thread, &value));
	SAY("waits", thread, WAITING(pthread_join(thread, &value)));
	printf("value %ld\n", (long)value);

	/* Its place is used again. */
	thread = start(lasts, NULL);
	gone();
	SAY("at-once", thread, pthread_join(thread, &value));
	thread = start(lasts, NULL);
	gone();
	SAY("at-once", thread, pthread_tryjoin_np(thread, NULL));

	thread = start(lasts, NULL);
	soon = in_ms(CLOCK_REALTIME, 10);
	SAY("gives-up", thread, pthread_timedjoin_np(thread, &value, &soon));
	soon = in_ms(CLOCK_MONOTONIC, 10);
	SAY("gives-up", thread, pthread_clockjoin_np(thread, &value, CLOCK_MONOTONIC, &soon));
	SAY("waits", thread, WAITING(pthread_timedjoin_np(thread, &value, NULL)));

	thread = start(lasts, NULL);
	struct timespec late = in_ms(CLOCK_MONOTONIC, 600000);
	SAY("waits", thread, WAITING(pthread_clockjoin_np(thread, &value, CLOCK_MONOTONIC, &late)));
	thread = start(never_locks, NULL);
	SAY("waits", thread, WAITING(pthread_join(thread, &value)));

	/* Refused by the C library: itself, and a detached thread. */
	thread = start(joins_itself, NULL);
	gone();
	pthread_join(thread, NULL);
	thread = start(lasts, NULL);
	pthread_detach(thread);
	SAY("gives-up", thread, pthread_join(thread, &value));
	gone();

	/* A joining thread that is cancelled, and another one that joins after it. */
	thread = start(lasts, NULL);
	pthread_t other = start(joins_forever, (void *)thread);
	while (tid == 0 || !is_asleep(tid))
		usleep(200);
	pthread_cancel(other);
	pthread_join(other, &value);
	printf("cancelled %d\n", value == PTHREAD_CANCELED);
	SAY("waits", thread, WAITING(pthread_join(thread, &value)));

	thrd_t simple;
	int number = 0;
	joiner = 0;
	thrd_create(&simple, lasts_c11, (void *)20);
	SAY("waits", simple, WAITING(thrd_join(simple, &number)));
	printf("number %d\n", number);
	fflush(stdout);

	/* A child has threads of its own, at the addresses of its parent's. */
	pid_t child = fork();
	if (child == 0) {
		thread = start(lasts, NULL);
		SAY("waits", thread, WAITING(pthread_join(thread, &value)));
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	return 0;
}
