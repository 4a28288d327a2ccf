// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The way to pods of other nodes: the kernel's routes and neighbours say it. */
#ifndef HOSTGAP_ROUTE_BPF_H
#define HOSTGAP_ROUTE_BPF_H

/* The kernel's LOOPBACK_IFINDEX: the number of `lo` in every namespace. */
enum { LOOPBACK_IFINDEX = 1 };

/* Points the look-up at the tunnel's other end, as if the node itself sent there, by whichever link its routes lead: it does so
 * from `lo`. With BPF_FIB_LOOKUP_OUTPUT a look-up passes over all routes by other links than the one that it names. */
static __always_inline void aim_at_tunnel(struct bpf_fib_lookup *fib, const struct tunnel *tunnel)
{
	fib->family = tunnel->family;
	fib->ifindex = LOOPBACK_IFINDEX;
	__builtin_memset(fib->ipv6_src, 0, sizeof(fib->ipv6_src));
	__builtin_memcpy(fib->ipv6_dst, tunnel->remote, sizeof(fib->ipv6_dst));
	if (tunnel->family == AF_INET)
		fib->ipv4_src = config.tunnel4;
}

/* A pod's frame must fit the MTU of its way, where that is less than the pods' own, with what a tunnel adds to it. */
static __always_inline void limit_frame(struct route *route, __u32 mtu)
{
	__u32 added = 0;

	if (route->tunnel.ifindex)
		added = route->tunnel.family == AF_INET6 ? WRAPPING6_BYTES : WRAPPING_BYTES;
	if (route->frame_max + added > mtu + ETH_HLEN)
		route->frame_max = mtu + ETH_HLEN - added;
}

/* Whether a link is one by which packets may leave to other nodes. Who takes that from it must know how long a route by it
 * may still be kept. */
static __always_inline bool is_uplink(__u32 ifindex)
{
	struct uplink *uplink;

	if (ifindex == config.wire)
		return true;
	uplink = bpf_map_lookup_elem(&uplinks, &ifindex);
	if (uplink)
		uplink->used_ns = bpf_ktime_get_ns();
	return uplink;
}

/* Fills in a route to the address that a look-up was prepared for; the result is that of bpf_fib_lookup(), and a success where
 * it leads elsewhere than to other nodes. */
static __always_inline long find_route(struct __sk_buff *skb, struct bpf_fib_lookup *fib, const struct prefix *to,
				       struct route *route)
{
	struct tunnel *tunnel = config.tunnel_port ? bpf_map_lookup_elem(&tunnels, to) : NULL;
	bool leaves;
	long result;

	if (tunnel) {
		route->tunnel = *tunnel;
		aim_at_tunnel(fib, tunnel);
	}
	/* With a length the kernel says what MTU it found, since Linux 5.12; of one byte, whatever the packet's. */
	fib->tot_len = 1;
	result = bpf_fib_lookup(skb, fib, sizeof(*fib), 0);
	route->frame_max = config.frame_max;
	if (result != BPF_FIB_LKUP_RET_SUCCESS && result != BPF_FIB_LKUP_RET_NO_NEIGH)
		return result;
	leaves = is_uplink(fib->ifindex);
	/* Who is the neighbour on another link matters to the kernel alone. IPsec's routes have none. */
	if (result == BPF_FIB_LKUP_RET_NO_NEIGH)
		return leaves ? result : BPF_FIB_LKUP_RET_SUCCESS;
	/* What goes by another link through the tunnel's device has that link's MTU all the same. */
	if (leaves || tunnel)
		limit_frame(route, fib->mtu_result);
	if (leaves) {
		route->wire = fib->ifindex;
		__builtin_memcpy(route->macs, fib->dmac, ETH_ALEN);
		__builtin_memcpy(route->macs + ETH_ALEN, fib->smac, ETH_ALEN);
	}
	return result;
}

/* Sends the packet for which a route was found. It goes through the kernel's neighbour table, which so learns that the
 * neighbour is in use and makes sure, in its own time, that it is still there. */
static __always_inline int send_first(struct __sk_buff *skb, const struct route *route, long result)
{
	if (route->tunnel.ifindex)
		return through_device(skb, route);
	if (result == BPF_FIB_LKUP_RET_NO_NEIGH)
		return pass(PASS_UNRESOLVED);
	if (!route->wire)
		return pass(PASS_ROUTED);
	return bpf_redirect_neigh(route->wire, NULL, 0, 0);
}

/* Sends a packet by a route that is known. `tos` is its type of service, where it is IPv4 and may be wrapped. */
static __always_inline int send(struct __sk_buff *skb, const struct route *route, bool wrappable, __u8 tos)
{
	if (route->tunnel.ifindex) {
		if (wrappable && route->wire && route->tunnel.family == AF_INET && config.tunnel4 && !skb->gso_size)
			return wrap(skb, route, tos);
		return through_device(skb, route);
	}
	if (!route->wire)
		return pass(PASS_ROUTED);
	if (bpf_skb_store_bytes(skb, 0, route->macs, sizeof(route->macs), 0))
		return drop(DROP_REWRITE);
	return bpf_redirect(route->wire, 0);
}

#endif
