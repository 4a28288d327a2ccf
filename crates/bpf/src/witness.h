/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the program of witness.bpf.c shares with who loads it. All times are nanoseconds of CLOCK_MONOTONIC. */
#ifndef HOSTGAP_WITNESS_H
#define HOSTGAP_WITNESS_H

#include <linux/types.h>

/* A CPU stood still somewhere between two ticks. */
struct stall {
	__u64 from_ns;    /* the tick before: the CPU ran */
	__u64 to_ns;      /* the tick after: it ran again */
	__u64 late_ns;    /* how long after it was due that tick came */
	__u64 stolen_ns;  /* what the hypervisor says it took in between; 0 where it does not say */
	__u32 cpu;
	__u32 pad;
};

/* What is known of a CPU. */
struct sighting {
	__u64 ticks;      /* ticks since the start */
	__u64 seen_ns;    /* the last one; 0: none yet */
	__u64 stolen_ns;  /* the hypervisor's clock at that tick */
	__u64 lost;       /* stalls that found no room in the ring */
};

#endif
