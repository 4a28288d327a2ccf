/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs at the links of pods count, those of forward.bpf.c and that of guard.bpf.c. */
#ifndef HOSTGAP_COUNTER_H
#define HOSTGAP_COUNTER_H

/* What is counted. What a program forwards itself is not: that is in the links' own statistics. */
enum counter {
	/* Dropped. */
	DROP_SHORT,           /* its header is cut off */
	DROP_SPOOFED_MAC,     /* a pod used another Ethernet address than its own */
	DROP_SPOOFED_ADDRESS, /* a pod used another IP address than its own, or spoke as a router */
	DROP_FOREIGN_VNI,     /* it came by the tunnel with the identifier of another network */
	DROP_TUNNEL_PORT,     /* a pod sent to the tunnel's port of a node */
	DROP_TUNNEL_PEER,     /* it came by the tunnel from an address that is no other node's */
	DROP_VLAN,            /* it has a VLAN tag; a pod has no VLANs */
	DROP_PROTOCOL,        /* neither IP nor ARP, from a pod or by the tunnel */
	DROP_REWRITE,         /* the kernel could not change the packet, for want of memory */
	/* Left to the kernel's path. */
	PASS_ARP,
	PASS_LINK_SCOPE,      /* IPv6 between a pod and its node: neighbour discovery and the like */
	PASS_OUTSIDE,         /* between a pod and an address outside the cluster */
	PASS_NODE,            /* to an address in the pods' prefix that no pod has, such as the gateway's */
	PASS_TOO_BIG,         /* above the MTU of the way: the kernel answers with an ICMP error or makes fragments */
	PASS_IRREGULAR,       /* a router has more to do than forward it: options, a spent TTL, a malformed header */
	PASS_UNRESOLVED,      /* the next hop's Ethernet address is not known yet: the kernel asks for it */
	PASS_ROUTED,          /* the kernel's routes lead elsewhere than to the wire, or than to where it came from */
	PASS_MARTIAN,         /* from outside with the address of a pod of this node */
	COUNTERS,
};

#endif
