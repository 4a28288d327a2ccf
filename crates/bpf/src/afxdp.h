/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of afxdp.bpf.c share with who loads them and reads their counters. */
#ifndef HOSTGAP_AFXDP_H
#define HOSTGAP_AFXDP_H

#include <linux/types.h>

enum afxdp_counter {
	AFXDP_TAKEN,  /* frames that were handed to the socket, or to the CPU that does */
	AFXDP_LEFT,   /* frames that were left to the kernel */
	AFXDP_COUNTERS,
};

/* Whose frames the socket gets. */
struct afxdp_wanted {
	__u8 v4[4];        /* the address of IPv4; zero: there is none */
	__u8 v6[16];       /* the address of IPv6; zero: there is none */
	__u16 port;        /* in network order */
	__u8 protocol;     /* IPPROTO_TCP or IPPROTO_UDP */
	__u8 has_cpu;      /* frames are handed over on another CPU than the one that received them */
	__u32 cpu;         /* which */
};

/* Never read. By it the numbers of this list are in the type information, from which the loader takes them. */
struct afxdp_lists {
	enum afxdp_counter counter;
};

#endif
