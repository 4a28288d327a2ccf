/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of forward.bpf.c share with who loads them and fills their maps. Addresses, ports and Ethernet
 * types are in network order. */
#ifndef HOSTGAP_FORWARD_H
#define HOSTGAP_FORWARD_H

#include <linux/types.h>

#include "pod/counter.h"

/* How many; and which of the forms that maps have had. FORMAT goes up with every change by which programs of before and of
 * after would read the same bytes as something else, or would miss a map of the other's: then forward/replace.rs says
 * what to do with a folder of before.
 *
 * 1: without `format` and `prefixes`; prefixes were constants of the programs.
 * 2: with both.
 * 3: with `uplinks`.
 * 4: an endpoint says `queued`, where it had two bytes of zeros. */
enum size {
	FORMAT = 4,
	SLOTS = 4096,          /* places for pods, of each family */
	RECENT = 1024,         /* places for what a CPU found out lately, of each kind */
	ENDPOINTS_MAX = 16384, /* addresses of pods of each family, and links to pods */
};

/* A node, as it is known before the first packet and as it stays: read-only for the programs, so that the verifier takes
 * out what a node does not have. What may change while packets flow is in maps. */
struct config {
	__u32 wire;          /* ifindex of the link to the other nodes */
	__u32 frame_max;     /* bytes of a pod's longest frame, with its Ethernet header */
	__be32 tunnel4;      /* this node's end of the tunnel; 0: there is none, or it is IPv6 */
	__u32 vni;           /* the tunnel's network identifier */
	__u32 route_ticks;   /* how long a route is good for without a look at the kernel's tables, in jiffies */
	__be16 tunnel_port;  /* its UDP port; 0: there is no tunnel */
	__u8 gateway_mac[6]; /* of the node's end of every pod's link: a pod's packets to elsewhere go there */
	__be32 gateway4;     /* the address that pods send to when they send elsewhere; no link has it */
};

/* A pod of this node. */
struct endpoint {
	__u32 ifindex;       /* of the node's end of its link */
	__u8 mac[6];         /* the pod's own */
	__u16 queued;        /* not 0: what it receives passes the queue of the node's end, where a rate is held */
};

/* The same by the lowest bits of the address, by which the pods of most nodes differ: found without a hash. Who has no
 * slot, because another pod of these bits came first, is found in the map. Empty: ifindex 0. */
struct slot4 {
	struct endpoint pod;
	__be32 address;
};

struct slot6 {
	struct endpoint pod;
	__u32 unused;
	__be32 address[4];
};

/* A tunnel to another node. */
struct tunnel {
	__u32 ifindex;       /* of the tunnel's device; 0: no tunnel */
	__u32 family;        /* AF_INET or AF_INET6: that of the other end's address, */
	__be32 remote[4];    /* of which IPv4 uses the first word */
};

/* A link beside the wire by which routes may lead to other nodes' pods. */
struct uplink {
	__u64 used_ns;       /* when a route by it was last found, on the monotonic clock; 0: never */
};

/* A prefix of pods. IPv4 stands as IPv4-mapped IPv6 (::ffff:0:0/96), so that one trie holds both. */
struct prefix {
	__u32 bits;
	__be32 address[4];
};

/* Where an address is at home, by the longest prefix that it is in. */
enum home {
	HOME_OUTSIDE,        /* in none: it is no pod's */
	HOME_HERE,           /* in one of this node's pods */
	HOME_THERE,          /* in one of the cluster's pods, and in none of this node's */
};

/* An address of which this CPU lately found that out. */
struct home4 {
	__u64 expires;       /* in ticks of the kernel's clock (jiffies) */
	__be32 address;
	enum home home;
};

struct home6 {
	__u64 expires;
	__be32 address[4];
	enum home home;
	__u32 unused;
};

/* From a pod of this node to a pod of another. */
struct way4 {
	__be32 from;
	__be32 to;
};

struct way6 {
	__be32 from[4];
	__be32 to[4];
};

/* What was found out for the first packet on such a way, for a while: that its sender may send it, and where it goes.
 * With both in one place a packet takes one look-up. */
struct route {
	__u64 expires;       /* in ticks of the kernel's clock (jiffies) */
	struct endpoint from;
	__u32 wire;          /* ifindex of the device it leaves by; 0: this is for the kernel to send */
	__u32 frame_max;     /* bytes of the longest frame of a pod that this way takes, with its Ethernet header */
	__u8 macs[12];       /* destination and source, as they stand in a frame */
	struct tunnel tunnel;
};

/* A route that this CPU used lately, found without a hash of the map's quality. There are as many places for addresses. */
struct recent4 {
	struct way4 way;
	struct route route;
};

struct recent6 {
	struct way6 way;
	struct route route;
};

/* Never read. By it the numbers of these lists are in the type information, from which the loader takes them. */
struct lists {
	enum size size;
	enum counter counter;
};

#endif
