/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of packets.bpf.c share with who loads them and reads their counters. */
#ifndef HOSTGAP_PACKETS_H
#define HOSTGAP_PACKETS_H

#include <linux/types.h>

/* Where a frame may be sent: a place in the map of links. */
enum packets_link {
	PACKETS_WIRE,     /* the generator's end of the wire, over which frames reach the verdict */
	PACKETS_ONWARD,   /* where the verdict that redirects sends them */
	PACKETS_LINKS,
};

enum packets_counter {
	PACKETS_GENERATED, /* frames that the generator made */
	PACKETS_JUDGED,    /* frames that met a verdict */
	PACKETS_SUNK,      /* frames that came back, or went onward, and ended there */
	PACKETS_COUNTERS,
};

/* Never read. By it the numbers of these lists are in the type information, from which the loader takes them. */
struct packets_lists {
	enum packets_link link;
	enum packets_counter counter;
};

#endif
