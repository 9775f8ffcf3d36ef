/* Every interposed function with every outcome that one program can bring about, each said on a line before it is called:
   `name address-of-the-lock`, `name address mutex` for waits on conditions. Then what it returned: `= answer errno`. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

int pthread_mutex_clocklock(pthread_mutex_t *, clockid_t, const struct timespec *);

static struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_nsec += ms * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* Calls with errno set to a value of its own, and says what came of it. */
#define DO(call, lock) \
	do { \
		errno = 77; \
		long answer = (long)(call); \
		int error = errno; \
		printf("%s %lu = %ld %d\n", #call, (unsigned long)(lock), answer, error); \
	} while (0)
#define DO_VOID(call, lock) \
	do { \
		errno = 77; \
		call; \
		printf("%s %lu = 0 %d\n", #call, (unsigned long)(lock), errno); \
	} while (0)

static void *in_thread(void *(*function)(void *), void *argument)
{
	pthread_t thread;
	void *answer;
	pthread_create(&thread, NULL, function, argument);
	pthread_join(thread, &answer);
	return answer;
}

static void *die_with(void *mutex)
{
	DO(pthread_mutex_lock(mutex), mutex);
	return NULL;
}

static void *others_mutex(void *mutex)
{
	struct timespec soon = in_ms(CLOCK_REALTIME, 5), soon_mono = in_ms(CLOCK_MONOTONIC, 5);
	struct timespec bad = { 0, -1 };
	DO(pthread_mutex_trylock(mutex), mutex);
	DO(pthread_mutex_timedlock(mutex, &soon), mutex);
	DO(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon_mono), mutex);
	DO(pthread_mutex_timedlock(mutex, &bad), mutex);
	DO(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &bad), mutex);
	DO(pthread_mutex_clocklock(mutex, 99, &soon), mutex);
	return NULL;
}

static void *unlock_others(void *mutex)
{
	DO(pthread_mutex_unlock(mutex), mutex);
	return NULL;
}

static void mutexes(int type, int protocol, int robust)
{
	pthread_mutexattr_t attributes;
	pthread_mutex_t mutex;
	struct timespec soon = in_ms(CLOCK_REALTIME, 1000), soon_mono = in_ms(CLOCK_MONOTONIC, 1000);
	struct timespec bad = { 0, 1000000000 };

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, type);
	pthread_mutexattr_setprotocol(&attributes, protocol);
	pthread_mutexattr_setrobust(&attributes, robust);
	printf("# mutex type %d protocol %d robust %d\n", type, protocol, robust);
	DO(pthread_mutex_init(&mutex, &attributes), &mutex);
	DO(pthread_mutex_lock(&mutex), &mutex);
	DO(pthread_mutex_unlock(&mutex), &mutex);
	DO(pthread_mutex_trylock(&mutex), &mutex);
	DO(pthread_mutex_unlock(&mutex), &mutex);
	DO(pthread_mutex_timedlock(&mutex, &soon), &mutex);
	DO(pthread_mutex_unlock(&mutex), &mutex);
	DO(pthread_mutex_timedlock(&mutex, &bad), &mutex);
	DO(pthread_mutex_unlock(&mutex), &mutex);
	DO(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &soon_mono), &mutex);
	in_thread(others_mutex, &mutex);
	DO(pthread_mutex_unlock(&mutex), &mutex);
	DO(pthread_mutex_clocklock(&mutex, CLOCK_REALTIME, &soon), &mutex);
	DO(pthread_mutex_unlock(&mutex), &mutex);
	DO(pthread_mutex_clocklock(&mutex, 99, &soon), &mutex);
	if (type != PTHREAD_MUTEX_NORMAL) {
		DO(pthread_mutex_lock(&mutex), &mutex);
		DO(pthread_mutex_lock(&mutex), &mutex);
		DO(pthread_mutex_trylock(&mutex), &mutex);
		DO(pthread_mutex_timedlock(&mutex, &soon), &mutex);
		in_thread(unlock_others, &mutex);
		DO(pthread_mutex_unlock(&mutex), &mutex);
		if (type == PTHREAD_MUTEX_RECURSIVE) {
			DO(pthread_mutex_unlock(&mutex), &mutex);
			DO(pthread_mutex_unlock(&mutex), &mutex);
			DO(pthread_mutex_unlock(&mutex), &mutex);
		}
		DO(pthread_mutex_unlock(&mutex), &mutex);
	}
	if (robust == PTHREAD_MUTEX_ROBUST) {
		in_thread(die_with, &mutex);
		DO(pthread_mutex_lock(&mutex), &mutex);
		DO(pthread_mutex_consistent(&mutex), 0);
		DO(pthread_mutex_unlock(&mutex), &mutex);
		in_thread(die_with, &mutex);
		DO(pthread_mutex_trylock(&mutex), &mutex);
		DO(pthread_mutex_unlock(&mutex), &mutex);
		DO(pthread_mutex_lock(&mutex), &mutex);
		DO(pthread_mutex_trylock(&mutex), &mutex);
	}
	DO(pthread_mutex_destroy(&mutex), &mutex);
}

static void *others_rwlock(void *lock)
{
	struct timespec soon = in_ms(CLOCK_REALTIME, 5), soon_mono = in_ms(CLOCK_MONOTONIC, 5);
	DO(pthread_rwlock_trywrlock(lock), lock);
	DO(pthread_rwlock_timedwrlock(lock, &soon), lock);
	DO(pthread_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &soon_mono), lock);
	return NULL;
}

static void *others_reader(void *lock)
{
	struct timespec soon = in_ms(CLOCK_REALTIME, 5), soon_mono = in_ms(CLOCK_MONOTONIC, 5);
	DO(pthread_rwlock_tryrdlock(lock), lock);
	DO(pthread_rwlock_timedrdlock(lock, &soon), lock);
	DO(pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &soon_mono), lock);
	return NULL;
}

static void rwlocks(void)
{
	pthread_rwlock_t lock;
	struct timespec soon = in_ms(CLOCK_REALTIME, 1000), bad = { 0, -1 };
	printf("# rwlock\n");
	DO(pthread_rwlock_init(&lock, NULL), &lock);
	DO(pthread_rwlock_rdlock(&lock), &lock);
	DO(pthread_rwlock_tryrdlock(&lock), &lock);
	DO(pthread_rwlock_timedrdlock(&lock, &soon), &lock);
	DO(pthread_rwlock_clockrdlock(&lock, CLOCK_REALTIME, &soon), &lock);
	in_thread(others_rwlock, &lock);
	for (int i = 0; i < 4; i++)
		DO(pthread_rwlock_unlock(&lock), &lock);
	DO(pthread_rwlock_timedrdlock(&lock, &bad), &lock);
	DO(pthread_rwlock_clockrdlock(&lock, 99, &soon), &lock);
	DO(pthread_rwlock_timedwrlock(&lock, &bad), &lock);
	DO(pthread_rwlock_clockwrlock(&lock, 99, &soon), &lock);
	DO(pthread_rwlock_wrlock(&lock), &lock);
	DO(pthread_rwlock_wrlock(&lock), &lock);
	DO(pthread_rwlock_rdlock(&lock), &lock);
	DO(pthread_rwlock_tryrdlock(&lock), &lock);
	DO(pthread_rwlock_timedwrlock(&lock, &soon), &lock);
	in_thread(others_reader, &lock);
	in_thread(others_rwlock, &lock);
	DO(pthread_rwlock_unlock(&lock), &lock);
	DO(pthread_rwlock_trywrlock(&lock), &lock);
	DO(pthread_rwlock_unlock(&lock), &lock);
	DO(pthread_rwlock_timedwrlock(&lock, &soon), &lock);
	DO(pthread_rwlock_unlock(&lock), &lock);
	DO(pthread_rwlock_clockwrlock(&lock, CLOCK_REALTIME, &soon), &lock);
	DO(pthread_rwlock_unlock(&lock), &lock);
	DO(pthread_rwlock_destroy(&lock), &lock);
}

static void spinlocks(void)
{
	static pthread_spinlock_t lock;
	printf("# spin\n");
	DO(pthread_spin_init(&lock, 0), &lock);
	DO(pthread_spin_lock(&lock), &lock);
	DO(pthread_spin_trylock(&lock), &lock);
	DO(pthread_spin_unlock(&lock), &lock);
	DO(pthread_spin_trylock(&lock), &lock);
	DO(pthread_spin_unlock(&lock), &lock);
	DO(pthread_spin_destroy(&lock), &lock);
}

static void conditions(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	pthread_cond_t condition;
	struct timespec soon = in_ms(CLOCK_REALTIME, 5), soon_mono = in_ms(CLOCK_MONOTONIC, 5), bad = { 0, -1 };
	printf("# condition\n");
	DO(pthread_cond_init(&condition, NULL), &condition);
	DO(pthread_mutex_lock(&mutex), &mutex);
	DO(pthread_cond_timedwait(&condition, &mutex, &soon), &condition);
	DO(pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &soon_mono), &condition);
	DO(pthread_cond_timedwait(&condition, &mutex, &bad), &condition);
	DO(pthread_cond_clockwait(&condition, &mutex, 99, &soon), &condition);
	DO(pthread_mutex_unlock(&mutex), &mutex);
	DO(pthread_cond_wait(&condition, &checking), &condition);
	DO(pthread_cond_signal(&condition), &condition);
	DO(pthread_cond_broadcast(&condition), &condition);
	DO(pthread_cond_destroy(&condition), &condition);
}

static void barriers(void)
{
	pthread_barrier_t barrier;
	printf("# barrier\n");
	DO(pthread_barrier_init(&barrier, NULL, 0), &barrier);
	DO(pthread_barrier_init(&barrier, NULL, 1), &barrier);
	DO(pthread_barrier_wait(&barrier), &barrier);
	DO(pthread_barrier_destroy(&barrier), &barrier);
}

static void semaphores(void)
{
	sem_t semaphore;
	struct timespec soon = in_ms(CLOCK_REALTIME, 5), soon_mono = in_ms(CLOCK_MONOTONIC, 5), bad = { 0, -1 };
	printf("# semaphore\n");
	DO(sem_init(&semaphore, 0, 3), &semaphore);
	DO(sem_wait(&semaphore), &semaphore);
	DO(sem_timedwait(&semaphore, &soon), &semaphore);
	DO(sem_trywait(&semaphore), &semaphore);
	DO(sem_trywait(&semaphore), &semaphore);
	DO(sem_timedwait(&semaphore, &soon), &semaphore);
	DO(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &soon_mono), &semaphore);
	DO(sem_timedwait(&semaphore, &bad), &semaphore);
	DO(sem_clockwait(&semaphore, 99, &soon), &semaphore);
	DO(sem_post(&semaphore), &semaphore);
	DO(sem_timedwait(&semaphore, &bad), &semaphore);
	DO(sem_clockwait(&semaphore, CLOCK_REALTIME, &soon), &semaphore);
	DO(sem_destroy(&semaphore), &semaphore);
}

static void c11(void)
{
	mtx_t mutex;
	cnd_t condition;
	struct timespec soon = in_ms(CLOCK_REALTIME, 5);
	printf("# c11\n");
	DO(mtx_init(&mutex, mtx_timed), &mutex);
	DO(mtx_lock(&mutex), &mutex);
	DO(mtx_trylock(&mutex), &mutex);
	DO(mtx_timedlock(&mutex, &soon), &mutex);
	DO(cnd_init(&condition), &condition);
	soon = in_ms(CLOCK_REALTIME, 5);
	DO(cnd_timedwait(&condition, &mutex, &soon), &condition);
	DO(cnd_signal(&condition), &condition);
	DO(cnd_broadcast(&condition), &condition);
	DO_VOID(cnd_destroy(&condition), &condition);
	DO(mtx_unlock(&mutex), &mutex);
	DO_VOID(mtx_destroy(&mutex), &mutex);
}

int main(void)
{
	int types[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK };
	for (int type = 0; type < 3; type++)
		for (int robust = 0; robust < 2; robust++)
			for (int inherit = 0; inherit < 2; inherit++) {
				mutexes(types[type], inherit ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE,
					robust ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED);
			}
	rwlocks();
	spinlocks();
	conditions();
	barriers();
	semaphores();
	c11();
	return 0;
}
