// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The way back to the sender of a packet to a pod of this node. */
#ifndef HOSTGAP_BACK_BPF_H
#define HOSTGAP_BACK_BPF_H

/* Whether packets leave by a link, where a tunnel's device is one. */
static __always_inline bool leads_by(const struct route *route, __u32 ifindex)
{
	return (route->tunnel.ifindex ? route->tunnel.ifindex : route->wire) == ifindex;
}

/* Whether a pod's answer would leave by the link that a packet came by (RFC 3704, section 2.2, as strict `rp_filter` has
 * it). Behind a tunnel other senders are known by a key or an address, and their packets must not come past it. What is found
 * out is kept for this CPU alone: a stranger who makes up addresses takes no other's place in the map of all. */
static __always_inline bool leads_back4(struct __sk_buff *skb, const struct endpoint *pod, const struct way4 *back)
{
	struct bpf_fib_lookup fib = {
		.family = AF_INET, .ifindex = pod->ifindex, .ipv4_src = back->from, .ipv4_dst = back->to,
	};
	struct prefix prefix = { .bits = 128, .address = { 0, 0, bpf_htonl(0xffff), back->to } };
	struct route found = { .expires = bpf_jiffies64() + config.route_ticks, .from = *pod };
	const struct route *route = find_recent4(back);
	long result;

	if (!route)
		route = find_kept4(back);
	if (route)
		return leads_by(route, skb->ifindex);
	result = find_route(skb, &fib, &prefix, &found);
	/* The kernel says the link also where it does not know the neighbour, since Linux 5.12 (`bpf_ipv4_fib_lookup`). */
	if (result == BPF_FIB_LKUP_RET_NO_NEIGH)
		found.wire = fib.ifindex;
	else
		keep_recent4(back, &found);
	return leads_by(&found, skb->ifindex);
}

static __always_inline bool leads_back6(struct __sk_buff *skb, const struct endpoint *pod, const struct way6 *back)
{
	struct bpf_fib_lookup fib = { .family = AF_INET6, .ifindex = pod->ifindex };
	struct prefix prefix = { .bits = 128 };
	struct route found = { .expires = bpf_jiffies64() + config.route_ticks, .from = *pod };
	const struct route *route = find_recent6(back);
	long result;

	if (!route)
		route = find_kept6(back);
	if (route)
		return leads_by(route, skb->ifindex);
	__builtin_memcpy(fib.ipv6_src, back->from, sizeof(back->from));
	__builtin_memcpy(fib.ipv6_dst, back->to, sizeof(back->to));
	__builtin_memcpy(prefix.address, back->to, sizeof(back->to));
	result = find_route(skb, &fib, &prefix, &found);
	if (result == BPF_FIB_LKUP_RET_NO_NEIGH)
		found.wire = fib.ifindex;
	else
		keep_recent6(back, &found);
	return leads_by(&found, skb->ifindex);
}

#endif
