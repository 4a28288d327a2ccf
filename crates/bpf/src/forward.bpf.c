// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Packets between pods and the wire, past bridge, netfilter, routing and, towards a pod, the CPU's backlog.
 *
 * The kernel's own path stays whole under these programs: pods have routes, neighbours and masquerading as without
 * them. What a program does not know, or is not to decide, it leaves to that path; there is no hole to fall into.
 *
 * A packet keeps its TTL. It cannot go round in circles: a program takes packets from pods to the wire or from the wire
 * to pods, never from wire to wire. */
#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "forward.h"
#include "generation/build.bpf.h"
#include "pod/counters.bpf.h"
#include "pod/frame.bpf.h"
#include "pod/source.bpf.h"
#include "forward/maps.bpf.h"
#include "forward/packet.bpf.h"
#include "forward/pod.bpf.h"
#include "forward/arp.bpf.h"
#include "forward/kept.bpf.h"
#include "forward/home.bpf.h"
#include "forward/tunnel.bpf.h"
#include "forward/route.bpf.h"
#include "forward/back.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Where a packet's transport protocol begins, behind an IP header without options or extension headers. */
#define TRANSPORT4 (ETH_HLEN + sizeof(struct iphdr))
#define TRANSPORT6 (ETH_HLEN + sizeof(struct ipv6hdr))

/* How a pod's link hands its packets to a program. */
enum link {
	VETH,   /* on arrival at the node's end */
	NETKIT, /* while the pod sends: there is no arrival that could be moved to another pod's link */
};

/* From a pod to another of this node. What a netkit pair is only sending has not arrived yet, so it cannot change over. */
static __always_inline int to_pod(struct __sk_buff *skb, const struct endpoint *pod, enum link from)
{
	return from == VETH ? hand_to_pod(skb, pod) : send_to_pod(skb, pod);
}

static __always_inline int resolve4(struct __sk_buff *skb, const struct endpoint *own, const struct way4 *way,
				    __u8 protocol)
{
	struct bpf_fib_lookup fib = {
		.family = AF_INET, .ifindex = skb->ifindex, .ipv4_src = way->from, .ipv4_dst = way->to,
	};
	struct prefix prefix = { .bits = 128, .address = { 0, 0, bpf_htonl(0xffff), way->to } };
	struct route route = { .expires = bpf_jiffies64() + config.route_ticks, .from = *own };
	long result = find_route(skb, &fib, &prefix, &route);

	if (result != BPF_FIB_LKUP_RET_NO_NEIGH)
		keep_route4(way, &route);
	if (is_too_big(skb, route.frame_max, TRANSPORT4, protocol))
		return pass(PASS_TOO_BIG);
	return send_first(skb, &route, result);
}

static __always_inline int resolve6(struct __sk_buff *skb, const struct endpoint *own, const struct way6 *way,
				    __u8 protocol)
{
	struct bpf_fib_lookup fib = { .family = AF_INET6, .ifindex = skb->ifindex };
	struct prefix prefix = { .bits = 128 };
	struct route route = { .expires = bpf_jiffies64() + config.route_ticks, .from = *own };
	long result;

	__builtin_memcpy(fib.ipv6_src, way->from, sizeof(way->from));
	__builtin_memcpy(fib.ipv6_dst, way->to, sizeof(way->to));
	__builtin_memcpy(prefix.address, way->to, sizeof(way->to));
	result = find_route(skb, &fib, &prefix, &route);
	if (result != BPF_FIB_LKUP_RET_NO_NEIGH)
		keep_route6(way, &route);
	if (is_too_big(skb, route.frame_max, TRANSPORT6, protocol))
		return pass(PASS_TOO_BIG);
	return send_first(skb, &route, result);
}

static __always_inline int from_pod4(struct __sk_buff *skb, enum link link)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct iphdr));
	struct route *route = NULL;
	const struct endpoint *own, *pod;
	enum home home = HOME_HERE;
	struct iphdr *ip;
	struct way4 way;
	__u8 protocol;
	bool regular;

	if (!eth)
		return drop(DROP_SHORT);
	ip = (void *)(eth + 1);
	protocol = ip->protocol;
	way.from = ip->saddr;
	way.to = ip->daddr;
	pod = pod_in_slot4(way.to);
	if (!pod) {
		route = find_recent4(&way);
		home = route ? HOME_THERE : home_of4(way.to);
		if (!route && home == HOME_THERE)
			route = find_kept4(&way);
	}
	regular = home != HOME_OUTSIDE && is_regular4(skb, eth, ip);
	if (regular && is_good(route, skb, eth)) {
		if (is_too_big(skb, route->frame_max, TRANSPORT4, protocol))
			return pass(PASS_TOO_BIG);
		return send(skb, route, true, ip->tos);
	}
	own = pod_at4(way.from);
	if (!is_own(skb, eth, own))
		return TC_ACT_SHOT;
	if (regular && home == HOME_THERE)
		return resolve4(skb, own, &way, protocol);
	if (regular && !pod)
		pod = bpf_map_lookup_elem(&endpoints4, &way.to);
	if (regular && pod && !is_too_big(skb, config.frame_max, TRANSPORT4, protocol))
		return to_pod(skb, pod, link);
	if (is_to_tunnel4(skb, ip))
		return drop(DROP_TUNNEL_PORT);
	if (home == HOME_OUTSIDE)
		return pass(PASS_OUTSIDE);
	return pass(!regular ? PASS_IRREGULAR : pod ? PASS_TOO_BIG : PASS_NODE);
}

static __always_inline int from_pod6(struct __sk_buff *skb, enum link link)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct ipv6hdr));
	struct route *route = NULL;
	const struct in6_addr *from, *to;
	const struct endpoint *own, *pod;
	enum home home = HOME_HERE;
	enum counter why;
	struct ipv6hdr *ip;
	struct way6 way;
	bool regular;
	__u8 next;

	if (!eth)
		return drop(DROP_SHORT);
	ip = (void *)(eth + 1);
	next = ip->nexthdr;
	__builtin_memcpy(&way, &ip->saddr, sizeof(way));
	from = (void *)way.from;
	to = (void *)way.to;
	pod = pod_in_slot6(to);
	if (!pod) {
		route = find_recent6(&way);
		home = route ? HOME_THERE : home_of6(to);
		if (!route && home == HOME_THERE)
			route = find_kept6(&way);
	}
	regular = home != HOME_OUTSIDE && is_regular6(skb, eth, ip);
	if (regular && is_good(route, skb, eth)) {
		if (is_too_big(skb, route->frame_max, TRANSPORT6, next))
			return pass(PASS_TOO_BIG);
		return send(skb, route, false, 0);
	}
	if (is_between_neighbours(from, to)) {
		/* It cannot leave the link, on which the node is the only other; but it reaches all of the node's ports. */
		if (!has_own_mac(skb, eth))
			return drop(DROP_SPOOFED_MAC);
		why = PASS_LINK_SCOPE;
	} else {
		own = pod_at6(from);
		if (!is_own(skb, eth, own))
			return TC_ACT_SHOT;
		if (regular && home == HOME_THERE)
			return resolve6(skb, own, &way, next);
		if (regular && !pod)
			pod = bpf_map_lookup_elem(&endpoints6, to);
		if (regular && pod && !is_too_big(skb, config.frame_max, TRANSPORT6, next))
			return to_pod(skb, pod, link);
		if (is_link_local(to) || is_multicast(to))
			why = PASS_LINK_SCOPE;
		else if (home == HOME_OUTSIDE)
			why = PASS_OUTSIDE;
		else
			why = !regular ? PASS_IRREGULAR : pod ? PASS_TOO_BIG : PASS_NODE;
	}
	if (why == PASS_LINK_SCOPE && speaks_as_router(skb, next))
		return drop(DROP_SPOOFED_ADDRESS);
	return is_to_tunnel6(skb, next) ? drop(DROP_TUNNEL_PORT) : pass(why);
}

static __always_inline int from_any_pod(struct __sk_buff *skb, enum link link)
{
	struct ethhdr *eth = head(skb, sizeof(*eth));
	enum counter why;

	if (!eth)
		return drop(DROP_SHORT);
	why = fault_of_kind(skb, eth);
	if (why != NO_FAULT)
		return drop(why);
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		return from_pod4(skb, link);
	case bpf_htons(ETH_P_IPV6):
		return from_pod6(skb, link);
	case bpf_htons(ETH_P_ARP):
		return from_pod_arp(skb);
	}
	return drop(fault_of_other(skb, eth));
}

/* To a pod of this node, from another pod. Other senders to a pod may be masqueraded or translated on the way
 * back, and so on the way in as well: the kernel's connection tracking must see both. So it is with what answers to by another
 * link than it came by. */
static __always_inline int deliver4(struct __sk_buff *skb, const struct iphdr *ip)
{
	const struct way4 back = { .from = ip->daddr, .to = ip->saddr };
	const struct endpoint *pod;
	const struct route *route;
	enum home home;

	pod = pod_in_slot4(back.from);
	/* Most packets answer: a route to their sender is kept, and such are kept to other nodes' pods alone. */
	route = pod ? find_recent4(&back) : NULL;
	if (route && leads_by(route, skb->ifindex))
		return hand_to_pod(skb, pod);
	/* What is not for pods is none of our business, and is not counted. */
	if (!pod && home_of4(back.from) != HOME_HERE)
		return TC_ACT_UNSPEC;
	home = home_of4(back.to);
	if (home != HOME_THERE)
		return pass(home == HOME_HERE ? PASS_MARTIAN : PASS_OUTSIDE);
	if (!pod)
		pod = bpf_map_lookup_elem(&endpoints4, &back.from);
	if (!pod)
		return is_to_tunnel4(skb, ip) ? drop(DROP_TUNNEL_PORT) : pass(PASS_NODE);
	return leads_back4(skb, pod, &back) ? hand_to_pod(skb, pod) : pass(PASS_ROUTED);
}

static __always_inline int deliver6(struct __sk_buff *skb)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct ipv6hdr));
	const struct endpoint *pod;
	const struct route *route;
	const struct in6_addr *from, *to;
	struct ipv6hdr *ip;
	struct way6 back;
	enum home home;

	if (!eth)
		return drop(DROP_SHORT);
	ip = (void *)(eth + 1);
	__builtin_memcpy(back.from, &ip->daddr, sizeof(back.from));
	__builtin_memcpy(back.to, &ip->saddr, sizeof(back.to));
	to = (void *)back.from;
	from = (void *)back.to;
	pod = pod_in_slot6(to);
	route = pod ? find_recent6(&back) : NULL;
	if (route && leads_by(route, skb->ifindex))
		return hand_to_pod(skb, pod);
	if (!pod && home_of6(to) != HOME_HERE)
		return TC_ACT_UNSPEC;
	home = home_of6(from);
	if (home != HOME_THERE)
		return pass(home == HOME_HERE ? PASS_MARTIAN : PASS_OUTSIDE);
	if (!pod)
		pod = bpf_map_lookup_elem(&endpoints6, to);
	if (!pod)
		return is_to_tunnel6(skb, ip->nexthdr) ? drop(DROP_TUNNEL_PORT) : pass(PASS_NODE);
	return leads_back6(skb, pod, &back) ? hand_to_pod(skb, pod) : pass(PASS_ROUTED);
}

/* At the node's end of a pod's veth pair, on arrival. */
SEC("tc")
int from_pod(struct __sk_buff *skb)
{
	return from_any_pod(skb, VETH);
}

/* At the node's end of a pod's netkit pair, while the pod sends. */
SEC("tc")
int from_netkit(struct __sk_buff *skb)
{
	return from_any_pod(skb, NETKIT);
}

/* At the wire, or at a link beside it by which other nodes are reached, on arrival. */
SEC("tc")
int from_wire(struct __sk_buff *skb)
{
	struct ethhdr *eth;
	struct iphdr *ip;
	__u32 protocol;

	/* A promiscuous device also gets what is for others. */
	if (skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	protocol = protocol_of(skb);
	if (protocol == bpf_htons(ETH_P_IPV6))
		return deliver6(skb);
	if (protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_UNSPEC;
	eth = head(skb, sizeof(*eth) + sizeof(*ip));
	if (!eth)
		return drop(DROP_SHORT);
	ip = (void *)(eth + 1);
	if (config.tunnel4 && ip->daddr == config.tunnel4)
		return unwrap(skb);
	return deliver4(skb, ip);
}

/* At the tunnel's device, on arrival. */
SEC("tc")
int from_tunnel(struct __sk_buff *skb)
{
	struct bpf_tunnel_key key = {};
	struct ethhdr *eth;
	struct iphdr *ip;
	__u32 protocol;
	bool is_known;

	/* A device that takes metadata takes every network's packets. Without a key it is a packet of the node's own. */
	if (!bpf_skb_get_tunnel_key(skb, &key, TUNNEL_KEY_BYTES, 0))
		is_known = is_peer4(bpf_htonl(key.remote_ipv4));
	else if (!bpf_skb_get_tunnel_key(skb, &key, TUNNEL_KEY_BYTES, BPF_F_TUNINFO_IPV6))
		is_known = is_peer((void *)key.remote_ipv6);
	else
		return TC_ACT_UNSPEC;
	if (key.tunnel_id != config.vni)
		return drop(DROP_FOREIGN_VNI);
	if (!is_known)
		return drop(DROP_TUNNEL_PEER);
	if (is_in_vlan(skb))
		return drop(DROP_VLAN);
	/* A pod's frame is for the gateway, whose address is not this device's. */
	bpf_skb_change_type(skb, PACKET_HOST);
	protocol = protocol_of(skb);
	if (protocol == bpf_htons(ETH_P_IPV6))
		return deliver6(skb);
	if (protocol == bpf_htons(ETH_P_ARP))
		return pass(PASS_ARP);
	if (protocol != bpf_htons(ETH_P_IP))
		return drop(DROP_PROTOCOL);
	eth = head(skb, sizeof(*eth) + sizeof(*ip));
	if (!eth)
		return drop(DROP_SHORT);
	ip = (void *)(eth + 1);
	return deliver4(skb, ip);
}
