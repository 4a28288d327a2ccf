// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Counting why packets were dropped, or left to the kernel. */
#ifndef HOSTGAP_COUNTERS_BPF_H
#define HOSTGAP_COUNTERS_BPF_H

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &what);

	if (counter)
		*counter += 1;
}

static __always_inline int drop(enum counter why)
{
	count(why);
	return TC_ACT_SHOT;
}

/* Lets others' programs, and then the kernel, have the packet. */
static __always_inline int pass(enum counter why)
{
	count(why);
	return TC_ACT_UNSPEC;
}

#endif
