// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The times at which the machine did not run a CPU.
 *
 * A timer of each CPU (perf's cpu-clock) ticks in its interrupt, whatever the CPU does: a softirq of any length, a
 * real-time task or a spinning one do not delay it, since interrupts are on in all of them. So a tick that comes late
 * means that the CPU did not run, or ran with interrupts off; the kernel's network code never does that for as long as a
 * tick may be late here.
 *
 * The program is called where the kernel runs an expired timer, not by the event: the timer knows when it was due, and
 * perf gives a program no tick of an idle CPU on some machines (PVM guests), where a stalled wake-up matters most. The
 * event itself asks for no samples.
 *
 * A stall shorter than a period falls between two ticks more often than on one. If a hypervisor counts the time that it
 * took from each CPU, the scheduler knows it to the nanosecond, and what lies between two ticks shows too. (The clock
 * itself, KVM's per-CPU variable steal_time, has an address only in kernels with CONFIG_KALLSYMS_ALL.)
 *
 * A CPU may run and be lost to a real-time thread all the same: on a kernel without full preemption the system call of
 * any other program ends first, which may take milliseconds (an agent that reads /proc each second). The scheduler counts
 * for how long each task waited. Softirq work that ran on top of that program may be the data path's, and is not counted;
 * neither is a wait behind a kernel thread or an idle CPU. */
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

/* What perf's timers call (kernel/events/core.c), by which they are told from all others. */
extern const void perf_swevent_hrtimer __ksym;

struct timerqueue_node {
	__s64 expires;
} __attribute__((preserve_access_index));

struct hrtimer {
	struct timerqueue_node node;
	void *function;
} __attribute__((preserve_access_index));

/* The way from a task to its CPU's run queue, which keeps the hypervisor's clock as it last read it. */
struct rq {
	__u64 prev_steal_time_rq;
} __attribute__((preserve_access_index));

struct cfs_rq {
	struct rq *rq;
} __attribute__((preserve_access_index));

struct sched_entity {
	__u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq;
} __attribute__((preserve_access_index));

struct sched_info {
	__u64 run_delay;
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int flags;
	int prio;
	int pid;
	struct sched_entity se;
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

/* include/linux/sched.h and include/linux/sched/prio.h: lower numbers are real-time priorities. */
#define PF_KTHREAD 0x00200000
#define MAX_RT_PRIO 100

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

static __always_inline void report(struct sighting *last, struct stall *stall)
{
	if (bpf_ringbuf_output(&stalls, stall, sizeof(*stall), BPF_RB_NO_WAKEUP))
		last->lost += 1;
}

/* What the hypervisor has taken from this CPU, as far as the scheduler knows: it reads that clock whenever it puts a
 * task on the CPU or takes one off, so on a CPU that works many times between two ticks. 0 where there is none. */
static __always_inline __u64 stolen(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (!bpf_core_field_exists(((struct rq *)0)->prev_steal_time_rq))
		return 0;
	return BPF_CORE_READ(task, se.cfs_rq, rq, prev_steal_time_rq);
}

SEC("raw_tracepoint/hrtimer_expire_entry")
int witness_tick(struct bpf_raw_tracepoint_args *context)
{
	struct hrtimer *timer = (struct hrtimer *)context->args[0];
	__u32 cpu = bpf_get_smp_processor_id();
	__u64 now_ns, due_ns, stolen_ns;
	struct sighting *last;
	struct stall stall;

	if (BPF_CORE_READ(timer, function) != &perf_swevent_hrtimer)
		return 0;
	last = bpf_map_lookup_elem(&sightings, &cpu);
	/* A CPU that was not there when the program was loaded. */
	if (!last)
		return 0;
	now_ns = bpf_ktime_get_ns();
	due_ns = BPF_CORE_READ(timer, node.expires);
	stolen_ns = stolen();
	/* The timer was set a period before it was due, or later, by the CPU itself. */
	stall = (struct stall){ .from_ns = last->seen_ns ? last->seen_ns : due_ns - period_ns, .to_ns = now_ns,
				.late_ns = now_ns - due_ns,
				.stolen_ns = last->seen_ns ? stolen_ns - last->stolen_ns : 0, .cpu = cpu };
	if (stall.late_ns >= late_min_ns || stall.stolen_ns >= stolen_min_ns)
		report(last, &stall);
	last->ticks += 1;
	last->stolen_ns = stolen_ns;
	/* Last, so that whoever reads this instant finds all stalls before it in the ring. */
	last->seen_ns = now_ns;
	return 0;
}

static __always_inline struct sighting *watched(__u32 *cpu)
{
	struct sighting *here;

	*cpu = bpf_get_smp_processor_id();
	here = bpf_map_lookup_elem(&sightings, cpu);
	return here && here->watched ? here : 0;
}

SEC("tp_btf/softirq_entry")
int witness_softirq_begins(void *context)
{
	__u32 cpu;
	struct sighting *here = watched(&cpu);

	(void)context;
	/* Elsewhere nobody asks for it, and reading the clock twice a packet is most of what this costs. */
	if (here && here->behind_program)
		here->softirq_since_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int witness_softirq_ends(void *context)
{
	__u32 cpu;
	struct sighting *here = watched(&cpu);

	(void)context;
	if (here && here->softirq_since_ns) {
		here->softirq_ns += bpf_ktime_get_ns() - here->softirq_since_ns;
		here->softirq_since_ns = 0;
	}
	return 0;
}

static __always_inline int is_normal_program(struct task_struct *task)
{
	return task->prio >= MAX_RT_PRIO && !(task->flags & PF_KTHREAD);
}

/* From now on a real-time thread of this CPU waits for a program of normal priority, if it waits. */
static __always_inline void program_begins(struct sighting *here)
{
	here->program_since_ns = bpf_ktime_get_ns();
	here->softirq_before_ns = here->softirq_ns;
	here->behind_program = 1;
}

/* A real-time thread leaves the CPU: did it wait for a program before it ran this time? */
static __always_inline void look_back(struct sighting *here, struct task_struct *waiter, __u32 cpu)
{
	__u64 waited_ns = waiter->sched_info.run_delay - here->waited_ns;
	__u64 softirq_ns = here->softirq_ns - here->softirq_before_ns;
	struct stall stall;

	if (here->waiter != waiter->pid || waited_ns < softirq_ns + late_min_ns)
		return;
	stall = (struct stall){ .from_ns = here->program_since_ns,
				.to_ns = bpf_ktime_get_ns() - (waiter->se.sum_exec_runtime - here->ran_ns),
				.blocked_ns = waited_ns - softirq_ns, .cpu = cpu };
	report(here, &stall);
}

/* A switch to a real-time thread is not looked at: a PVM guest was seen to miss the tracepoint for many of those. The
 * arguments: whether prev was preempted, prev, next. */
SEC("tp_btf/sched_switch")
int witness_switch(__u64 *arguments)
{
	struct task_struct *prev = (struct task_struct *)arguments[1], *next = (struct task_struct *)arguments[2];
	int to_program = is_normal_program(next), from_realtime = prev->prio < MAX_RT_PRIO;
	struct sighting *here;
	__u32 cpu;

	if (!from_realtime && next->prio < MAX_RT_PRIO)
		return 0;
	here = watched(&cpu);
	if (!here)
		return 0;
	if (from_realtime) {
		if (here->behind_program)
			look_back(here, prev, cpu);
		here->waiter = prev->pid;
		here->waited_ns = prev->sched_info.run_delay;
		here->ran_ns = prev->se.sum_exec_runtime;
		here->behind_program = 0;
	}
	if (!to_program)
		here->behind_program = 0;
	else if (!here->behind_program)
		program_begins(here);
	return 0;
}
