/* N threads take one mutex each, or all the same one, M times. Prints how often. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static int together;
static long times;
static long sum;

static __attribute__((noinline)) void once(pthread_mutex_t *mutex)
{
	pthread_mutex_lock(mutex);
	sum++;
	pthread_mutex_unlock(mutex);
	__asm__ volatile("");
}

static void *work(void *unused)
{
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	for (long i = 0; i < times; i++)
		once(together ? &shared : &own);
	return unused;
}

int main(int count, char **words)
{
	int threads = count > 1 ? atoi(words[1]) : 1;
	times = count > 2 ? atol(words[2]) : 1000;
	together = count > 3 ? atoi(words[3]) : 0;
	int rounds = count > 4 ? atoi(words[4]) : 1;
	pthread_t handles[1024];
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < threads; i++)
			if (pthread_create(&handles[i], NULL, work, NULL))
				return 1;
		for (int i = 0; i < threads; i++)
			pthread_join(handles[i], NULL);
	}
	printf("locked %ld\n", times * threads * rounds);
	printf("shared %lu\n", (unsigned long)&shared);
	printf("once %lu\n", (unsigned long)&once);
	return 0;
}
