/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of splice.bpf.c share with who loads them and fills their maps. Addresses are in network order and
 * stand as IPv6; IPv4 as IPv4-mapped IPv6 (::ffff:0:0/96), so that one map holds both. */
#ifndef HOSTGAP_SPLICE_H
#define HOSTGAP_SPLICE_H

#include <linux/types.h>

/* The format of the maps. It goes up with every change by which programs of before and of after would read the same bytes
 * as something else, or would miss a map of the other's: then splice/replace.rs says what to do with a folder of before.
 * The programs of two versions share not only maps but streams: of the two ends of one, each can have joined under another
 * version. So what a program may assume of the other end is part of the format too.
 *
 * 1: what is below. The first ones had no map `splice_format`. */
enum splice_size {
	SPLICE_FORMAT = 1,
};

struct address {
	__be32 words[4];
};

/* One end of a connection, as it sees it. */
struct end {
	struct address local;
	struct address remote;
	__u16 local_port;  /* in host order, as the port below */
	__u16 remote_port;
};

/* The bytes that one end sends. */
struct half {
	__u64 spliced;     /* bytes handed to the other end past TCP, written by the sender alone */
	__u64 read;        /* of those, what the receiver's process is known to have read: it had nothing left then */
	__u32 arrived;     /* TCP's sequence number up to which everything is in the receiver's one queue */
	__u32 joined;      /* 1: this end is in the map of sockets */
};

/* A connection: first the end with the lower address and port, then the other. */
struct connection {
	struct half halves[2];
};

enum splice_counter {
	SPLICE_JOINED,      /* sockets that were put into the map */
	SPLICE_MESSAGES,    /* messages that went past TCP */
	/* Messages that were left to TCP. */
	SPLICE_ALONE,       /* the other end is not in the map (yet) */
	SPLICE_IN_FLIGHT,   /* what was left to TCP before has not arrived yet, and must not be overtaken */
	SPLICE_FULL,        /* the receiver lags behind: TCP makes the sender wait, which the short cut cannot */
	/* Sockets that were left alone. */
	SPLICE_UNJOINED,    /* the kernel refused it, or there are too many */
	SPLICE_COUNTERS,
};

/* Never read. By it the numbers of these lists are in the type information, from which the loader takes them. */
struct splice_lists {
	enum splice_size size;
	enum splice_counter counter;
};

#endif
