// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Keeps a CPU in a timer's interrupt, with interrupts off, for three milliseconds: nothing else runs there, as if the
 * machine did not run the CPU. */
#include <linux/bpf.h>

/* libbpf's headers are not where a test could find them. */
#define SEC(name) __attribute__((section(name), used))
#define __ksym __attribute__((section(".ksyms")))
static __u64 (*bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*bpf_probe_read_kernel)(void *, __u32, const void *) = (void *)BPF_FUNC_probe_read_kernel;
static long (*bpf_loop)(__u32, void *, void *, __u64) = (void *)BPF_FUNC_loop;

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define STOPPED_NS 3000000
/* From the beginning of a stop to that of the next, at least. */
#define APART_NS 20000000
/* More than three milliseconds of reading the clock on any machine. */
#define READINGS_MAX (1 << 22)

static long is_over(__u32 reading, void *end_ns)
{
	(void)reading;
	return bpf_ktime_get_ns() >= *(__u64 *)end_ns;
}

extern const void perf_swevent_hrtimer __ksym;

struct hrtimer {
	void *function;
} __attribute__((preserve_access_index));

__u64 stopped_ns = 0;

/* Perf's timers run with interrupts off. The witness' own tick is one: the next is due while the CPU stands still. */
SEC("raw_tracepoint/hrtimer_expire_entry")
int stopped(struct bpf_raw_tracepoint_args *context)
{
	struct hrtimer *timer = (struct hrtimer *)context->args[0];
	__u64 now_ns = bpf_ktime_get_ns(), end_ns = now_ns + STOPPED_NS;
	const void *function = 0;

	bpf_probe_read_kernel(&function, sizeof(function), __builtin_preserve_access_index(&timer->function));
	if (function != &perf_swevent_hrtimer || now_ns < stopped_ns + APART_NS)
		return 0;
	stopped_ns = now_ns;
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
