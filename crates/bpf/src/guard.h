/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the program of guard.bpf.c shares with who loads it and fills its maps. Addresses are in network order. */
#ifndef HOSTGAP_GUARD_H
#define HOSTGAP_GUARD_H

#include <linux/types.h>

#include "pod/counter.h"

/* The format of the maps goes up with every change by which programs of before and of after would read the same bytes as
 * something else, or would miss a map of the other's: then guard/replace.rs says what to do with a folder of before.
 *
 * 1: what is below. The first ones had no map `guard_format`. */
enum guard_size {
	GUARD_FORMAT = 1,
	GUARDED_MAX = 16384, /* links to pods, and addresses of pods */
};

/* The pod at a link. */
struct guarded {
	__u64 container;     /* the cookie of its network namespace */
	__be32 v6[4];        /* the addresses of this interface; 0: it has none of this family */
	__be32 v4;
	__u8 mac[6];
	__u16 unused[3];
};

/* An address of one of a container's interfaces. IPv4 stands as IPv4-mapped IPv6 (::ffff:0:0/96), so that one map holds
 * both. */
struct source {
	__u64 container;
	__be32 address[4];
};

/* Never read. By it the numbers of these lists are in the type information, from which the loader takes them. */
struct guard_lists {
	enum guard_size size;
};

#endif
