/* Whether a thread of the own process sleeps, by /proc. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int is_asleep(int thread)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
	int file = open(path, O_RDONLY);
	ssize_t length = read(file, text, sizeof text - 1);
	close(file);
	const char *state = length > 0 ? strrchr(text, ')') : NULL;
	return state && state[1] == ' ' && state[2] == 'S';
}
