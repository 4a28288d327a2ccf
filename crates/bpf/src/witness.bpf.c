// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The times at which the machine did not run a CPU.
 *
 * A timer of each CPU (perf's cpu-clock) calls this program in its interrupt, whatever the CPU does: a softirq of any
 * length, a real-time task or a spinning one do not delay it, since interrupts are on in all of them. So a tick that
 * comes late means that the CPU did not run, or ran with interrupts off; the kernel's network code never does that for
 * as long as a tick may be late here.
 *
 * A stall of several periods is seen by the tick behind it, which comes as soon as the CPU runs again and so beside the
 * grid, except if it ends within late_min_ns after an instant of the grid.
 *
 * A stall shorter than a period falls between two ticks more often than on one. If a hypervisor counts the time that it
 * took from each CPU, the scheduler knows it to the nanosecond, and what lies between two ticks shows too. (The clock
 * itself, KVM's per-CPU variable steal_time, has an address only in kernels with CONFIG_KALLSYMS_ALL.) */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "witness.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before the program is loaded. */
const volatile __u64 period_ns = 0;
const volatile __u64 late_min_ns = 0;
const volatile __u64 stolen_min_ns = 0;
/* Never read. By it the layout is in the type information, against which the loader is checked. */
const volatile struct stall stall_layout = {};

/* Ticks until the grid is known. */
#define SETTLING 16

/* The way from a task to its CPU's run queue, which keeps the hypervisor's clock as it last read it. */
struct rq {
	__u64 prev_steal_time_rq;
} __attribute__((preserve_access_index));

struct cfs_rq {
	struct rq *rq;
} __attribute__((preserve_access_index));

struct sched_entity {
	struct cfs_rq *cfs_rq;
} __attribute__((preserve_access_index));

struct task_struct {
	struct sched_entity se;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} stalls SEC(".maps");

/* By CPU. The loader sets how many there are. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sighting);
} sightings SEC(".maps");

/* What the hypervisor has taken from this CPU, as far as the scheduler knows: it reads that clock whenever it puts a
 * task on the CPU or takes one off, so on a CPU that works many times between two ticks. 0 where there is none. */
static __always_inline __u64 stolen(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (!bpf_core_field_exists(((struct rq *)0)->prev_steal_time_rq))
		return 0;
	return BPF_CORE_READ(task, se.cfs_rq, rq, prev_steal_time_rq);
}

/* How late a tick is, by the grid of periods on which ticks are due. What counts is not the time since the last tick: on
 * an idle CPU many ticks do not come at all, and the next one that does is in time. */
static __always_inline __u64 lateness(struct sighting *last, __u64 now_ns)
{
	__u64 since_ns = now_ns - last->grid_ns, late_ns = since_ns % period_ns;
	/* A tick that seems nearly a period late is earlier on the grid than those before it, which were a little late. At the
	 * beginning it may be much: the first tick may have come late itself. */
	__u64 early_ns = last->ticks < SETTLING ? period_ns / 2 : period_ns / 16;

	if (late_ns > period_ns - early_ns) {
		last->grid_ns = now_ns;
		return 0;
	}
	last->grid_ns = now_ns - late_ns;
	return late_ns;
}

SEC("perf_event")
int witness_tick(void *context)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct sighting *last = bpf_map_lookup_elem(&sightings, &cpu);
	__u64 now_ns = bpf_ktime_get_ns(), stolen_ns = stolen(), late_ns = 0;
	struct stall stall;

	(void)context;
	/* A CPU that was not there when the program was loaded. */
	if (!last)
		return 0;
	if (last->seen_ns)
		late_ns = lateness(last, now_ns);
	else
		last->grid_ns = now_ns;
	stall = (struct stall){ .from_ns = last->seen_ns, .to_ns = now_ns, .late_ns = late_ns,
				.stolen_ns = stolen_ns - last->stolen_ns, .cpu = cpu };
	if (last->seen_ns && (late_ns >= late_min_ns || stall.stolen_ns >= stolen_min_ns)) {
		if (bpf_ringbuf_output(&stalls, &stall, sizeof(stall), BPF_RB_NO_WAKEUP))
			last->lost += 1;
	}
	last->ticks += 1;
	last->stolen_ns = stolen_ns;
	/* Last, so that whoever reads this instant finds all stalls before it in the ring. */
	last->seen_ns = now_ns;
	return 0;
}
