// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Routes that are kept for a moment, since a look-up for each packet costs more than all the rest of a program. */
#ifndef HOSTGAP_KEPT_BPF_H
#define HOSTGAP_KEPT_BPF_H

/* Whether what was found out need not yet be looked up again. */
static __always_inline bool is_fresh(__u64 expires)
{
	return (__s64)(expires - bpf_jiffies64()) > 0;
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

/* Whether this CPU lately sent packets of a way through a tunnel to this end. */
static __always_inline bool leads_to4(const struct way4 *way, __be32 remote)
{
	__u32 at = place(way->from, way->to);
	struct recent4 *recent = bpf_map_lookup_elem(&recent4, &at);

	return recent && recent->way.from == way->from && recent->way.to == way->to && is_fresh(recent->route.expires) &&
	       recent->route.tunnel.family == AF_INET && recent->route.tunnel.remote[0] == remote;
}

/* The fresh route of a way that this CPU used lately, or NULL. */
static __always_inline struct route *find_recent4(const struct way4 *way)
{
	__u32 at = place(way->from, way->to);
	struct recent4 *recent = bpf_map_lookup_elem(&recent4, &at);

	if (recent && recent->way.from == way->from && recent->way.to == way->to && is_fresh(recent->route.expires))
		return &recent->route;
	return NULL;
}

/* The same of all CPUs. It is copied to where this CPU finds it faster the next time: what has expired there may have
 * been renewed here by another CPU.
 *
 * An element that is evicted becomes another way's at once (kernel/bpf/bpf_lru_list.c), maybe while it is copied. A copy
 * counts if the way has the same element after it. */
static __always_inline struct route *find_kept4(const struct way4 *way)
{
	struct route *route = bpf_map_lookup_elem(&routes4, way);
	__u32 at = place(way->from, way->to);
	struct recent4 *recent;

	if (!route || !is_fresh(route->expires))
		return NULL;
	recent = bpf_map_lookup_elem(&recent4, &at);
	if (!recent)
		return NULL;
	recent->way = *way;
	recent->route = *route;
	if (bpf_map_lookup_elem(&routes4, way) != route) {
		recent->route.expires = 0;
		return NULL;
	}
	return &recent->route;
}

/* Keeps a route for this CPU. */
static __always_inline void keep_recent4(const struct way4 *way, const struct route *route)
{
	__u32 at = place(way->from, way->to);
	struct recent4 *recent = bpf_map_lookup_elem(&recent4, &at);

	if (recent) {
		recent->way = *way;
		recent->route = *route;
	}
}

/* Keeps a route for all CPUs. */
static __always_inline void keep_route4(const struct way4 *way, const struct route *route)
{
	keep_recent4(way, route);
	bpf_map_update_elem(&routes4, way, route, BPF_ANY);
}

static __always_inline struct route *find_recent6(const struct way6 *way)
{
	__u32 at = place(way->from[3], way->to[3] ^ way->to[1]);
	struct recent6 *recent = bpf_map_lookup_elem(&recent6, &at);

	if (recent && same_words(recent->way.from, way->from, 8) && is_fresh(recent->route.expires))
		return &recent->route;
	return NULL;
}

static __always_inline struct route *find_kept6(const struct way6 *way)
{
	struct route *route = bpf_map_lookup_elem(&routes6, way);
	__u32 at = place(way->from[3], way->to[3] ^ way->to[1]);
	struct recent6 *recent;

	if (!route || !is_fresh(route->expires))
		return NULL;
	recent = bpf_map_lookup_elem(&recent6, &at);
	if (!recent)
		return NULL;
	recent->way = *way;
	recent->route = *route;
	if (bpf_map_lookup_elem(&routes6, way) != route) {
		recent->route.expires = 0;
		return NULL;
	}
	return &recent->route;
}

static __always_inline void keep_recent6(const struct way6 *way, const struct route *route)
{
	__u32 at = place(way->from[3], way->to[3] ^ way->to[1]);
	struct recent6 *recent = bpf_map_lookup_elem(&recent6, &at);

	if (recent) {
		recent->way = *way;
		recent->route = *route;
	}
}

static __always_inline void keep_route6(const struct way6 *way, const struct route *route)
{
	keep_recent6(way, route);
	bpf_map_update_elem(&routes6, way, route, BPF_ANY);
}

#endif
