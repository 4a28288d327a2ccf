// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Keeps a CPU in a timer's interrupt, with interrupts off, for three milliseconds: nothing else runs there, as if the
 * machine did not run the CPU. */
#include <linux/bpf.h>

/* libbpf's headers are not where a test could find them. */
#define SEC(name) __attribute__((section(name), used))
static __u64 (*bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*bpf_loop)(__u32, void *, void *, __u64) = (void *)BPF_FUNC_loop;

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define STOPPED_NS 3000000
/* More than three milliseconds of reading the clock on any machine. */
#define READINGS_MAX (1 << 22)

static long is_over(__u32 reading, void *end_ns)
{
	(void)reading;
	return bpf_ktime_get_ns() >= *(__u64 *)end_ns;
}

SEC("perf_event")
int stopped(void *context)
{
	__u64 end_ns = bpf_ktime_get_ns() + STOPPED_NS;

	(void)context;
	bpf_loop(READINGS_MAX, is_over, &end_ns, 0);
	return 0;
}

/* The same for each packet: the CPU is busy in a softirq, with interrupts on. */
SEC("tc")
int busy(struct __sk_buff *packet)
{
	__u64 end_ns = bpf_ktime_get_ns() + STOPPED_NS;

	(void)packet;
	bpf_loop(READINGS_MAX, is_over, &end_ns, 0);
	return 0;
}
