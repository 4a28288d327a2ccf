/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of late.bpf.c share with who loads them and reads their events. Instants are nanoseconds of
 * CLOCK_MONOTONIC; ports are in host order. */
#ifndef HOSTGAP_LATE_H
#define HOSTGAP_LATE_H

#include <linux/types.h>

enum late_size {
	LATE_NAMESPACES = 16,        /* network namespaces of a topology; more than any has */
	LATE_THREADS = 4096,         /* threads that wait for a CPU at one time */
	LATE_PORTS = 65536,
	LATE_RING_BYTES = 1 << 22,   /* fifty thousand events, of which a slice has a few thousand */
};

/* What is known before the first event. */
struct late_config {
	__u64 wait_ns;       /* shorter waits for a CPU are not reported */
	__u64 softirq_ns;    /* nor shorter softirq work, */
	__u64 gap_ns;        /* which is one piece if it pauses no longer than this */
	__u64 exchange_ns;   /* nor exchanges that took less */
	__u32 server_port;   /* that of the server's own sockets */
	__u32 unused;
};

/* What a network namespace is to the programs; the value of its inode number. */
enum late_namespace {
	LATE_ON_THE_WAY = 1, /* packets pass through it */
	LATE_SERVER = 2,     /* the server's threads are in it */
};

/* An exchange on a connection, by the client's port; 0: not yet. */
struct late_exchange {
	__u64 sent;          /* the client's call that sent the request has returned */
	__u64 arrived;       /* the server's socket has bytes to read */
	__u64 read;          /* the server's call that read them has returned */
	__u64 answered;      /* the server's call that sent the answer has returned */
	__u64 back;          /* the client's socket has bytes to read */
	__u32 server_cpu;    /* where it was read, plus 1 */
	__u32 unused;
};

/* Softirq work of a CPU. */
struct late_softirq {
	__u64 begin;         /* of the present piece */
	__u64 end;           /* of the last work */
};

enum late_kind {
	LATE_RETRANSMITTED,  /* a segment was sent again; detail: enum late_timer */
	LATE_DROPPED,        /* a packet was dropped; detail: the kernel's skb_drop_reason */
	LATE_SERVER_WAITED,  /* a thread of the server waited for a CPU; detail: its number */
	LATE_CLIENT_WAITED,  /* the same of the generator */
	LATE_SOFTIRQ_RAN,    /* detail: the last vector */
	LATE_EXCHANGED,      /* an exchange that took long, with its stages; detail: its server_cpu */
	LATE_KINDS,
};

/* Why a segment was sent again. */
enum late_timer {
	LATE_RTO,            /* the retransmission timer expired */
	LATE_PROBE,          /* the tail loss probe did */
	LATE_FAST,           /* acknowledgements said so: fast retransmit, RACK */
	LATE_TIMERS,
};

struct late_event {
	__u64 from_ns;
	__u64 until_ns;      /* when it was reported */
	__u64 arrived_ns;    /* these four of LATE_EXCHANGED, as in struct late_exchange */
	__u64 read_ns;
	__u64 answered_ns;
	__u64 back_ns;
	__u32 kind;
	__u32 detail;
	__u32 cpu;
	__u16 local_port;    /* as the socket or the packet has them: of a packet the source's */
	__u16 remote_port;
};

/* Never read. By it the numbers of these lists are in the type information, from which the loader takes them. */
struct late_lists {
	enum late_size size;
	enum late_namespace netns;
	enum late_kind kind;
	enum late_timer timer;
	struct late_event event;
};

#endif
