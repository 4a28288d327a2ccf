/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the program of witness.bpf.c shares with who loads it. All times are nanoseconds of CLOCK_MONOTONIC. */
#ifndef HOSTGAP_WITNESS_H
#define HOSTGAP_WITNESS_H

#include <linux/types.h>

/* A CPU stood still somewhere between two instants, or ran somebody else's system call. */
struct stall {
	__u64 from_ns;    /* the CPU ran: the tick before, or the look at its clock before; or a thread was woken */
	__u64 to_ns;      /* it ran again: a tick, or a look at its clock; or that thread ran */
	__u64 late_ns;    /* how long after it was due the tick came, or a thread woken on an idle CPU had its turn;
	                   * 0 for others */
	__u64 stolen_ns;  /* what the hypervisor says it took between two looks at its clock; 0 for others */
	__u64 blocked_ns; /* for how long that thread, of real-time priority, waited in between; 0 for others */
	__u32 cpu;
	__u32 pad;
};

/* What is known of a CPU. */
struct sighting {
	__u64 ticks;      /* ticks since the start */
	__u64 seen_ns;    /* the last one, or the start */
	__u64 lost;       /* stalls that found no room in the ring */
	__u64 watched;    /* 0: another CPU than those to watch */
	__u64 clock_ns;   /* the run queue's clock at the last look at the hypervisor's; 0: there was none */
	__u64 stolen_ns;  /* the hypervisor's clock then */
	/* Of the real-time thread that was woken last: */
	__u64 woken_ns;         /* when; 0: it has run since */
	__u64 kept_ns;          /* for how long others than the race are known to have run since */
	__u64 softirq_since_ns; /* the beginning of the softirq work under way, or 1: before that; 0: none is */
	__u64 softirq_ns;       /* softirq work since that thread was woken, as far as it ended */
	__s32 waiter;           /* which thread it is */
	__u32 is_behind;        /* whether another than the race's had the CPU when it was woken, or got it then */
	__u32 is_idle;          /* whether the CPU was idle then, and in no softirq */
	__u32 pad;
	__u64 softirqs;         /* softirqs since the start */
	__u64 softirqs_before;  /* those at the waking */
};

#endif
