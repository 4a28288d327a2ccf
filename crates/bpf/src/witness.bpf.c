// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The times at which the machine did not run a CPU.
 *
 * Timers of each CPU tick in its interrupt, whatever the CPU does: a softirq of any length, a real-time task or a spinning
 * one do not delay them, since interrupts are on in all of them. So a tick that comes late means that the CPU did not run,
 * or ran with interrupts off; the kernel's network code never does that for as long as a tick may be late here.
 *
 * There are two kinds. The kernel's own tick costs nothing, comes CONFIG_HZ times a second, and not to an idle CPU. A tick
 * of perf's cpu-clock comes as often as the loader wants, to an idle CPU too.
 *
 * The program is called where the kernel runs an expired timer: the timer knows when it was due, and perf gives a program
 * no tick of an idle CPU on some machines (PVM guests), where a stalled wake-up matters most. Perf's event itself asks for
 * no samples.
 *
 * A stall shorter than a period falls between two ticks more often than on one. If a hypervisor counts the time that it
 * took from each CPU, the scheduler knows it to the nanosecond whenever it accounts for a thread's time, and a program
 * that looks each time sees that stall with its place. (The clock itself, KVM's per-CPU variable steal_time, has an
 * address only in kernels with CONFIG_KALLSYMS_ALL.)
 *
 * An idle CPU has handed itself back to the hypervisor, and runs again when that lets it. A thread that is woken there and
 * gets its turn much later waited for the machine, if nothing else ran meanwhile; a softirq in between may be the data
 * path's work, and then it is no stall.
 *
 * A CPU may run and be lost to a real-time thread all the same: on a kernel without full preemption the system call of
 * any other program ends first, and a round of the kernel's own memory management, which may take milliseconds. What
 * counts is the time between the waking of a thread and its own turn, if such a one had the CPU at the waking; else the
 * part of it for which the scheduler saw such ones run. Softirqs in between may be the data path's work, so their time is
 * not counted, and neither is a wait behind another kernel thread or an idle CPU. */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "witness.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before the program is loaded. */
const volatile __u64 period_ns = 0;
const volatile __u64 kernel_period_ns = 0;
const volatile __u64 late_min_ns = 0;
const volatile __u64 stolen_min_ns = 0;
const volatile __u64 woken_late_min_ns = 0;
/* Never read. By it the layout is in the type information, against which the loader is checked. */
const volatile struct stall stall_layout = {};

/* What the timers call, which distinguishes them from all others: perf's (kernel/events/core.c), and the kernel's own
 * tick (kernel/time/tick-sched.c) since and before Linux 6.9. */
extern const void perf_swevent_hrtimer __ksym;
extern const void tick_nohz_handler __ksym __weak;
extern const void tick_sched_timer __ksym __weak;

struct timerqueue_node {
	__s64 expires;
} __attribute__((preserve_access_index));

struct hrtimer {
	struct timerqueue_node node;
	void *function;
} __attribute__((preserve_access_index));

/* The way from a task to its CPU's run queue, which knows what runs, and keeps the machine's clock and the hypervisor's
 * as it last read them. */
struct task_struct;

struct rq {
	int cpu;
	struct task_struct *curr;
	__u64 clock;
	__u64 prev_steal_time_rq;
} __attribute__((preserve_access_index));

struct cfs_rq {
	struct rq *rq;
} __attribute__((preserve_access_index));

struct sched_entity {
	struct cfs_rq *cfs_rq;
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int flags;
	int prio;
	int pid;
	int wake_cpu;
	struct sched_entity se;
	char comm[16];
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

/* None for a CPU that the loader did not name: each below the last one that it named has its place, too. */
static __always_inline struct sighting *watched(__u32 cpu)
{
	struct sighting *there = bpf_map_lookup_elem(&sightings, &cpu);

	return there && there->watched ? there : 0;
}

static __always_inline void report(struct sighting *last, struct stall *stall)
{
	if (bpf_ringbuf_output(&stalls, stall, sizeof(*stall), BPF_RB_NO_WAKEUP))
		last->lost += 1;
}

/* The time between two ticks of the kind that a timer is; 0: it is none. */
static __always_inline __u64 period_of(struct hrtimer *timer)
{
	const void *function = BPF_CORE_READ(timer, function);

	if (function == &perf_swevent_hrtimer)
		return period_ns;
	if (function && (function == &tick_nohz_handler || function == &tick_sched_timer))
		return kernel_period_ns;
	return 0;
}

SEC("raw_tracepoint/hrtimer_expire_entry")
int witness_tick(struct bpf_raw_tracepoint_args *context)
{
	struct hrtimer *timer = (struct hrtimer *)context->args[0];
	__u64 period = period_of(timer), now_ns, due_ns;
	__u32 cpu = bpf_get_smp_processor_id();
	struct sighting *last;
	struct stall stall;

	if (!period)
		return 0;
	/* The kernel ticks on all of them. */
	last = watched(cpu);
	if (!last)
		return 0;
	now_ns = bpf_ktime_get_ns();
	due_ns = BPF_CORE_READ(timer, node.expires);
	/* The CPU itself set the timer no more than a period before it was due. */
	stall = (struct stall){ .from_ns = due_ns - period, .to_ns = now_ns, .late_ns = now_ns - due_ns, .cpu = cpu };
	if (stall.from_ns < last->seen_ns)
		stall.from_ns = last->seen_ns;
	if ((__s64)stall.late_ns >= (__s64)late_min_ns)
		report(last, &stall);
	last->ticks += 1;
	/* Last, so that whoever reads this instant finds all stalls before it in the ring. */
	last->seen_ns = now_ns;
	return 0;
}

static __always_inline int begins(const char *comm, const char *name, int letters)
{
	for (int at = 0; at < letters; at++)
		if (comm[at] != name[at])
			return 0;
	return 1;
}

#define IS(task, name) begins((task)->comm, name, sizeof(name) - 1)

/* A program of normal priority, which in a race is none of the race (number 0 is idleness); or a kernel thread that looks
 * after memory, which never carries a packet. */
static __always_inline int is_of_others(struct task_struct *task)
{
	if (!task->pid || task->prio < MAX_RT_PRIO)
		return 0;
	if (!(task->flags & PF_KTHREAD))
		return 1;
	return IS(task, "kdamond") || IS(task, "kswapd") || IS(task, "kcompactd") || IS(task, "khugepaged") ||
	       IS(task, "ksmd");
}

/* The argument: who is woken. */
SEC("tp_btf/sched_waking")
int witness_waking(__u64 *arguments)
{
	struct task_struct *woken = (struct task_struct *)arguments[0], *curr;
	struct sighting *there;

	if (woken->prio >= MAX_RT_PRIO)
		return 0;
	there = watched(woken->wake_cpu);
	if (!there)
		return 0;
	curr = woken->se.cfs_rq->rq->curr;
	there->waiter = woken->pid;
	there->is_behind = is_of_others(curr);
	there->is_idle = !curr->pid && !there->softirq_since_ns;
	there->softirqs_before = there->softirqs;
	there->kept_ns = 0;
	there->softirq_ns = 0;
	/* Last, since that CPU goes by it while this one writes. */
	there->woken_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_entry")
int witness_softirq_begins(void *context)
{
	struct sighting *here = watched(bpf_get_smp_processor_id());

	(void)context;
	if (!here)
		return 0;
	here->softirqs += 1;
	/* Who is woken later asks only for what comes after the waking. */
	here->softirq_since_ns = here->woken_ns ? bpf_ktime_get_ns() : 1;
	return 0;
}

SEC("tp_btf/softirq_exit")
int witness_softirq_ends(void *context)
{
	struct sighting *here = watched(bpf_get_smp_processor_id());
	__u64 since_ns;

	(void)context;
	if (!here)
		return 0;
	since_ns = here->softirq_since_ns;
	here->softirq_since_ns = 0;
	/* On top of that thread itself it is no longer a wait. */
	if (!here->woken_ns || !since_ns || here->waiter == (__s32)bpf_get_current_pid_tgid())
		return 0;
	if (since_ns < here->woken_ns)
		since_ns = here->woken_ns;
	here->softirq_ns += bpf_ktime_get_ns() - since_ns;
	return 0;
}

/* The thread that was woken last has its turn from an instant on. */
static __always_inline void has_its_turn(struct sighting *there, __u64 from_ns, __u32 cpu)
{
	struct stall stall = { .from_ns = there->woken_ns, .to_ns = from_ns, .cpu = cpu };
	__u64 kept_ns;

	there->woken_ns = 0;
	if (there->is_idle) {
		stall.late_ns = stall.to_ns - stall.from_ns;
		if (stall.late_ns >= woken_late_min_ns && there->softirqs == there->softirqs_before)
			report(there, &stall);
		return;
	}
	kept_ns = there->is_behind ? stall.to_ns - stall.from_ns : there->kept_ns;
	if (kept_ns < there->softirq_ns + late_min_ns)
		return;
	stall.blocked_ns = kept_ns - there->softirq_ns;
	report(there, &stall);
}

/* A thread may be woken while it still leaves its CPU to another one, behind which it waits then. The arguments: whether
 * prev was preempted, prev, next. */
SEC("tp_btf/sched_switch")
int witness_switch(__u64 *arguments)
{
	struct task_struct *prev = (struct task_struct *)arguments[1];
	struct task_struct *next = (struct task_struct *)arguments[2];
	__u32 cpu = bpf_get_smp_processor_id();
	struct sighting *here;

	if (prev->prio >= MAX_RT_PRIO && next->prio >= MAX_RT_PRIO)
		return 0;
	here = watched(cpu);
	if (!here || !here->woken_ns)
		return 0;
	if (here->waiter == next->pid)
		has_its_turn(here, bpf_ktime_get_ns(), cpu);
	else if (here->waiter == prev->pid)
		here->is_behind = is_of_others(next);
	return 0;
}

/* What the hypervisor took from a CPU since the last look. The run queue's clock runs as fast as the monotonic one. */
static __always_inline void look_for_steal(struct sighting *there, struct rq *rq)
{
	__u64 clock_ns = rq->clock, stolen_ns, now_ns;
	struct stall stall;

	if (!bpf_core_field_exists(rq->prev_steal_time_rq))
		return;
	stolen_ns = rq->prev_steal_time_rq;
	if (there->clock_ns && stolen_ns - there->stolen_ns >= stolen_min_ns) {
		now_ns = bpf_ktime_get_ns();
		stall = (struct stall){ .from_ns = now_ns - (clock_ns - there->clock_ns), .to_ns = now_ns,
					.stolen_ns = stolen_ns - there->stolen_ns, .cpu = rq->cpu };
		report(there, &stall);
	}
	there->clock_ns = clock_ns;
	there->stolen_ns = stolen_ns;
}

/* A thread has run until now, without a break. The scheduler says so when it takes the CPU from it, and in between, of a
 * real-time thread since Linux 5.16 (ed7b564cfdd0); before that its turn is known by the switch alone. But a PVM guest was
 * seen to miss the tracepoints of most switches to real-time threads. The arguments: the thread, nanoseconds. */
SEC("tp_btf/sched_stat_runtime")
int witness_ran(__u64 *arguments)
{
	struct task_struct *task = (struct task_struct *)arguments[0];
	__u64 ran_ns = arguments[1], now_ns, kept_ns;
	struct rq *rq = task->se.cfs_rq->rq;
	struct sighting *there = watched(rq->cpu);

	if (!there)
		return 0;
	look_for_steal(there, rq);
	if (!there->woken_ns)
		return 0;
	now_ns = bpf_ktime_get_ns();
	if (is_of_others(task)) {
		kept_ns = now_ns - there->woken_ns;
		there->kept_ns += ran_ns < kept_ns ? ran_ns : kept_ns;
		return 0;
	}
	if (task->pid != there->waiter)
		return 0;
	/* Unless it was woken while it ran, on its way off the CPU; that turn is still to come. */
	if (now_ns - ran_ns > there->woken_ns)
		has_its_turn(there, now_ns - ran_ns, rq->cpu);
	return 0;
}
