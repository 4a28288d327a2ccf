// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The way to pods of other nodes. The kernel's routes and neighbours are the truth; what they say is kept for a moment,
 * since a look-up for each packet costs more than all the rest of a program. */
#ifndef HOSTGAP_ROUTE_BPF_H
#define HOSTGAP_ROUTE_BPF_H

/* Whether a route need not yet be looked up again. */
static __always_inline bool is_fresh(const struct route *route)
{
	return (__s64)(route->expires - bpf_jiffies64()) > 0;
}

/* Whether a route is good for a packet of this frame. */
static __always_inline bool is_good(const struct route *route, const struct __sk_buff *skb, const struct ethhdr *eth)
{
	return route && route->from.ifindex == skb->ifindex && same_mac(route->from.mac, eth->h_source);
}

/* A place among RECENT for a way, by multiplicative hashing (Knuth, section 6.4, with the golden ratio). */
static __always_inline __u32 place(__u32 from, __u32 to)
{
	return ((to ^ from << 7) * 0x9e3779b9U) >> 22;
}
_Static_assert(RECENT == 1 << (32 - 22), "the place is of RECENT");

/* The fresh route that is known of a way, or NULL. What is found in the map of all CPUs is copied to where this CPU finds
 * it faster the next time; one that has expired here may have been renewed there by another CPU. */
static __always_inline struct route *find_kept4(const struct way4 *way)
{
	__u32 at = place(way->from, way->to);
	struct recent4 *recent = bpf_map_lookup_elem(&recent4, &at);
	struct route *route;

	if (!recent)
		return NULL;
	if (recent->way.from == way->from && recent->way.to == way->to && is_fresh(&recent->route))
		return &recent->route;
	route = bpf_map_lookup_elem(&routes4, way);
	if (!route || !is_fresh(route))
		return NULL;
	recent->way = *way;
	recent->route = *route;
	return &recent->route;
}

static __always_inline void keep_route4(const struct way4 *way, const struct route *route)
{
	__u32 at = place(way->from, way->to);
	struct recent4 *recent = bpf_map_lookup_elem(&recent4, &at);

	if (recent) {
		recent->way = *way;
		recent->route = *route;
	}
	bpf_map_update_elem(&routes4, way, route, BPF_ANY);
}

static __always_inline struct route *find_kept6(const struct way6 *way)
{
	__u32 at = place(way->from[3], way->to[3] ^ way->to[1]);
	struct recent6 *recent = bpf_map_lookup_elem(&recent6, &at);
	struct route *route;

	if (!recent)
		return NULL;
	if (same_words(recent->way.from, way->from, 8) && is_fresh(&recent->route))
		return &recent->route;
	route = bpf_map_lookup_elem(&routes6, way);
	if (!route || !is_fresh(route))
		return NULL;
	recent->way = *way;
	recent->route = *route;
	return &recent->route;
}

static __always_inline void keep_route6(const struct way6 *way, const struct route *route)
{
	__u32 at = place(way->from[3], way->to[3] ^ way->to[1]);
	struct recent6 *recent = bpf_map_lookup_elem(&recent6, &at);

	if (recent) {
		recent->way = *way;
		recent->route = *route;
	}
	bpf_map_update_elem(&routes6, way, route, BPF_ANY);
}

/* Points the look-up at the tunnel's other end, as if the node itself sent there. */
static __always_inline void aim_at_tunnel(struct bpf_fib_lookup *fib, const struct tunnel *tunnel)
{
	fib->family = tunnel->family;
	fib->ifindex = config.wire;
	__builtin_memset(fib->ipv6_src, 0, sizeof(fib->ipv6_src));
	__builtin_memcpy(fib->ipv6_dst, tunnel->remote, sizeof(fib->ipv6_dst));
	if (tunnel->family == AF_INET)
		fib->ipv4_src = config.tunnel4;
}

/* Fills in a route to the address that a look-up was prepared for; the result is that of bpf_fib_lookup(). */
static __always_inline long find_route(struct __sk_buff *skb, struct bpf_fib_lookup *fib, const struct prefix *to,
				       struct route *route)
{
	struct tunnel *tunnel = config.tunnel_port ? bpf_map_lookup_elem(&tunnels, to) : NULL;
	__u32 flags = 0;
	long result;

	if (tunnel) {
		route->tunnel = *tunnel;
		aim_at_tunnel(fib, tunnel);
		flags = BPF_FIB_LOOKUP_OUTPUT;
	}
	result = bpf_fib_lookup(skb, fib, sizeof(*fib), flags);
	if (result == BPF_FIB_LKUP_RET_SUCCESS && fib->ifindex == config.wire) {
		route->wire = config.wire;
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
