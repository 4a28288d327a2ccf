/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of services.bpf.c share with who loads them and fills their maps. Addresses and ports are in network
 * order, and addresses stand as IPv6: IPv4 as IPv4-mapped IPv6 (::ffff:0:0/96), so that one map holds both families, and a
 * socket of IPv6 that calls an IPv4 address names the same thing. */
#ifndef HOSTGAP_SERVICES_H
#define HOSTGAP_SERVICES_H

#include <linux/types.h>

/* The limits leave room for twice what Kubernetes is tested with (10,000 Services and 50,000 endpoints of them, in
 * sig-scalability's configs-and-limits/thresholds.md), each in two families. What is not used takes no memory but its
 * place in the table of the map: 16 bytes.
 *
 * The format of the maps goes up with every change by which programs of before and of after would read the same bytes as
 * something else, or would miss a map of the other's: then services/replace.rs says what to do with a folder of before.
 *
 * 1: what is below. */
enum services_size {
	SERVICES_FORMAT = 1,
	SERVICES_MAX = 65536,
	SERVICE_SLOTS_MAX = 262144,
	SERVICE_FLOWS_MAX = 65536,
	SERVICE_SOCKETS_MAX = 16384,
};

struct address {
	__be32 words[4];
};

/* What a socket calls, or is led to. */
struct destination {
	struct address address;
	__be16 port;
	__u16 protocol;    /* that of the socket: IPPROTO_TCP, IPPROTO_UDP */
};

/* A Service at one address and port. Its backends are in slots 0 to `backends` - 1 of its generation. With each change of
 * them comes a later generation: its slots are written first, then it is written here, then the old slots go. So there is
 * an entry for a Service as long as it has slots. */
struct service {
	__u32 generation;
	__u32 backends;    /* 0: no backend answers, and calls are refused */
	__u32 affinity_s;  /* so long after its last call a client is led to the same backend; 0: each call to any */
};

struct slot {
	struct destination service;
	__u32 generation;
	__u32 slot;
};

/* Who is led to the same backend again. */
enum choice_kind {
	CHOICE_OF_NETNS = 1,   /* a client: the cookie of its network namespace */
	CHOICE_OF_SOCKET = 2,  /* a socket of datagrams: its cookie */
};

struct choice_key {
	__u64 whose;
	struct destination service;
	__u32 kind;
};

struct choice {
	__u64 until_ns;    /* by the monotonic clock; 0: for good */
	struct destination backend;
	__u32 slot;        /* where the backend was */
};

/* What a socket was led to. The value is what it had called. */
struct flow {
	__u64 socket;
	struct destination backend;
	__u32 unused;
};

enum service_count {
	SERVICE_LED,       /* calls that were led to a backend */
	SERVICE_KEPT,      /* of these, those to the same backend as before */
	SERVICE_REFUSED,   /* calls of a Service without backends */
	SERVICE_LOST,      /* calls of a Service whose slots were not to be found, which were refused too */
	SERVICE_COUNTS,
};

/* Never read. By it the numbers of these lists are in the type information, from which the loader takes them. */
struct service_lists {
	enum services_size size;
	enum choice_kind kind;
	enum service_count count;
};

#endif
