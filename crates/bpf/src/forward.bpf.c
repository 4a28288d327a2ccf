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
#include "forward/maps.bpf.h"
#include "forward/packet.bpf.h"
#include "forward/pod.bpf.h"
#include "forward/tunnel.bpf.h"
#include "forward/route.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* How a pod's link hands its packets to a program. */
enum link {
	VETH,   /* on arrival at the node's end */
	NETKIT, /* while the pod sends: there is no arrival that could be moved to another pod's link */
};

/* To a pod of this node. What has just arrived changes over to the pod, past the backlog; what is only being sent is sent
 * on by the pod's link, with the pod's Ethernet address. */
static __always_inline int to_pod(struct __sk_buff *skb, const struct endpoint *pod, enum link from)
{
	if (from == VETH)
		return bpf_redirect_peer(pod->ifindex, 0);
	if (bpf_skb_store_bytes(skb, 0, pod->mac, sizeof(pod->mac), 0))
		return drop(DROP_REWRITE);
	return bpf_redirect(pod->ifindex, 0);
}

static __always_inline int resolve4(struct __sk_buff *skb, const struct endpoint *own, const struct way4 *way)
{
	struct bpf_fib_lookup fib = {
		.family = AF_INET, .ifindex = skb->ifindex, .ipv4_src = way->from, .ipv4_dst = way->to,
	};
	struct prefix prefix = { .bits = 128, .address = { 0, 0, bpf_htonl(0xffff), way->to } };
	struct route route = { .expires = bpf_jiffies64() + config.route_ticks, .from = *own };
	long result = find_route(skb, &fib, &prefix, &route);

	if (result != BPF_FIB_LKUP_RET_NO_NEIGH)
		keep_route4(way, &route);
	return send_first(skb, &route, result);
}

static __always_inline int resolve6(struct __sk_buff *skb, const struct endpoint *own, const struct way6 *way)
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
	return send_first(skb, &route, result);
}

/* Whether a packet needs more than forwarding: the kernel answers with an ICMP error, or cuts it. */
static __always_inline bool is_too_big(const struct __sk_buff *skb)
{
	return skb->len > config.frame_max && !skb->gso_size;
}

static __always_inline int from_pod4(struct __sk_buff *skb, enum link link)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct iphdr));
	bool inside, remote;
	const struct endpoint *own, *pod;
	struct route *route;
	struct iphdr *ip;
	struct way4 way;

	if (!eth)
		return drop(DROP_SHORT);
	ip = (void *)(eth + 1);
	way.from = ip->saddr;
	way.to = ip->daddr;
	inside = within4(way.to, config.cluster4, config.cluster4_mask);
	remote = inside && !within4(way.to, config.pods4, config.pods4_mask) && !is_too_big(skb);
	if (remote) {
		route = find_kept4(&way);
		if (is_good(route, skb, eth))
			return send(skb, route, true, ip->tos);
	}
	own = pod_at4(way.from);
	if (!is_own(skb, eth, own))
		return TC_ACT_SHOT;
	if (remote)
		return resolve4(skb, own, &way);
	pod = inside ? pod_at4(way.to) : NULL;
	if (pod)
		return to_pod(skb, pod, link);
	if (inside && !within4(way.to, config.pods4, config.pods4_mask))
		return pass(PASS_TOO_BIG);
	return is_to_tunnel4(skb, ip) ? drop(DROP_TUNNEL_PORT) : pass(inside ? PASS_NODE : PASS_OUTSIDE);
}

/* A pod's neighbour discovery, and what else IPv6 says between two neighbours. It cannot leave the link, on which the
 * node is the only other. */
static __always_inline int link_scope6(struct __sk_buff *skb, const struct ethhdr *eth)
{
	return has_own_mac(skb, eth) ? pass(PASS_LINK_SCOPE) : drop(DROP_SPOOFED_MAC);
}

static __always_inline int from_pod6(struct __sk_buff *skb, enum link link)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct ipv6hdr));
	const struct in6_addr *from, *to;
	const struct endpoint *own, *pod;
	bool inside, remote;
	struct route *route;
	struct ipv6hdr *ip;
	struct way6 way;
	__u8 next;

	if (!eth)
		return drop(DROP_SHORT);
	ip = (void *)(eth + 1);
	next = ip->nexthdr;
	__builtin_memcpy(&way, &ip->saddr, sizeof(way));
	from = (void *)way.from;
	to = (void *)way.to;
	inside = within6(to, config.cluster6, config.cluster6_mask);
	remote = inside && !within6(to, config.pods6, config.pods6_mask) && !is_too_big(skb);
	if (remote) {
		route = find_kept6(&way);
		if (is_good(route, skb, eth))
			return send(skb, route, false, 0);
	}
	if (is_link_local(from) || (is_unspecified(from) && is_multicast(to)))
		return link_scope6(skb, eth);
	own = pod_at6(from);
	if (!is_own(skb, eth, own))
		return TC_ACT_SHOT;
	if (remote)
		return resolve6(skb, own, &way);
	if (is_link_local(to) || is_multicast(to))
		return pass(PASS_LINK_SCOPE);
	pod = inside ? pod_at6(to) : NULL;
	if (pod)
		return to_pod(skb, pod, link);
	if (inside && !within6(to, config.pods6, config.pods6_mask))
		return pass(PASS_TOO_BIG);
	return is_to_tunnel6(skb, next) ? drop(DROP_TUNNEL_PORT) : pass(inside ? PASS_NODE : PASS_OUTSIDE);
}

/* An ARP packet for IPv4 over Ethernet (RFC 826). */
struct arp {
	__be16 hardware, protocol;
	__u8 hardware_bytes, protocol_bytes;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__be32 sender;
	__u8 target_mac[ETH_ALEN];
	__be32 target;
} __attribute__((packed));

#define ARP_ETHERNET 1
#define ARP_REQUEST 1
#define ARP_REPLY 2

static __always_inline void set_gateway_mac(__u8 *mac)
{
#pragma unroll
	for (int at = 0; at < ETH_ALEN; at++)
		mac[at] = config.gateway_mac[at];
}

/* Tells a pod the gateway's Ethernet address. The kernel answers only for addresses that a link has. */
static __always_inline int answer_for_gateway(struct __sk_buff *skb, const struct arp *question)
{
	struct {
		__u16 unused; /* so that the words of the ARP packet are aligned */
		struct ethhdr eth;
		struct arp arp;
	} __attribute__((packed, aligned(4))) answer = {};
	struct arp *arp = &answer.arp;

	__builtin_memcpy(answer.eth.h_dest, question->sender_mac, ETH_ALEN);
	set_gateway_mac(answer.eth.h_source);
	answer.eth.h_proto = bpf_htons(ETH_P_ARP);
	arp->hardware = bpf_htons(ARP_ETHERNET);
	arp->protocol = bpf_htons(ETH_P_IP);
	arp->hardware_bytes = ETH_ALEN;
	arp->protocol_bytes = sizeof(arp->sender);
	arp->operation = bpf_htons(ARP_REPLY);
	set_gateway_mac(arp->sender_mac);
	arp->sender = config.gateway4;
	__builtin_memcpy(arp->target_mac, question->sender_mac, ETH_ALEN);
	arp->target = question->sender;
	if (bpf_skb_store_bytes(skb, 0, &answer.eth, sizeof(answer.eth) + sizeof(answer.arp), 0))
		return drop(DROP_REWRITE);
	return bpf_redirect(skb->ifindex, 0);
}

/* A pod may ask for others and answer for itself; who asks before it uses an address says 0 (RFC 5227). */
static __always_inline int from_pod_arp(struct __sk_buff *skb)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct arp));
	const struct endpoint *own;
	struct arp *arp;
	__be32 sender;

	if (!eth)
		return drop(DROP_SHORT);
	arp = (void *)(eth + 1);
	if (!has_own_mac(skb, eth) || !same_mac(arp->sender_mac, eth->h_source))
		return drop(DROP_SPOOFED_MAC);
	sender = arp->sender;
	if (sender) {
		own = pod_at4(sender);
		if (!own || own->ifindex != skb->ifindex)
			return drop(DROP_SPOOFED_ADDRESS);
	}
	if (arp->operation == bpf_htons(ARP_REQUEST) && arp->target == config.gateway4)
		return answer_for_gateway(skb, arp);
	return pass(PASS_ARP);
}

static __always_inline int from_any_pod(struct __sk_buff *skb, enum link link)
{
	struct ethhdr *eth;

	switch (protocol_of(skb)) {
	case bpf_htons(ETH_P_IP):
		return from_pod4(skb, link);
	case bpf_htons(ETH_P_IPV6):
		return from_pod6(skb, link);
	case bpf_htons(ETH_P_ARP):
		return from_pod_arp(skb);
	}
	eth = head(skb, sizeof(*eth));
	if (!eth)
		return drop(DROP_SHORT);
	return has_own_mac(skb, eth) ? pass(PASS_PROTOCOL) : drop(DROP_SPOOFED_MAC);
}

/* To a pod of this node, from another pod. Whoever else sends to a pod may be masqueraded or translated on the way
 * back, and so on the way in as well: the kernel's connection tracking must see both. */
static __always_inline int deliver4(struct __sk_buff *skb, const struct iphdr *ip)
{
	const struct endpoint *pod;

	if (!within4(ip->saddr, config.cluster4, config.cluster4_mask))
		return pass(PASS_OUTSIDE);
	if (within4(ip->saddr, config.pods4, config.pods4_mask))
		return pass(PASS_MARTIAN);
	pod = pod_at4(ip->daddr);
	if (pod)
		return bpf_redirect_peer(pod->ifindex, 0);
	return is_to_tunnel4(skb, ip) ? drop(DROP_TUNNEL_PORT) : pass(PASS_NODE);
}

static __always_inline int deliver6(struct __sk_buff *skb)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct ipv6hdr));
	const struct endpoint *pod;
	struct ipv6hdr *ip;
	struct in6_addr to;

	if (!eth)
		return drop(DROP_SHORT);
	ip = (void *)(eth + 1);
	to = ip->daddr;
	/* What is not for pods is none of our business, and is not counted. */
	if (!within6(&to, config.pods6, config.pods6_mask))
		return TC_ACT_UNSPEC;
	if (!within6(&ip->saddr, config.cluster6, config.cluster6_mask))
		return pass(PASS_OUTSIDE);
	if (within6(&ip->saddr, config.pods6, config.pods6_mask))
		return pass(PASS_MARTIAN);
	pod = pod_at6(&to);
	if (pod)
		return bpf_redirect_peer(pod->ifindex, 0);
	return is_to_tunnel6(skb, ip->nexthdr) ? drop(DROP_TUNNEL_PORT) : pass(PASS_NODE);
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

/* At the wire, on arrival. */
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
	if (within4(ip->daddr, config.pods4, config.pods4_mask))
		return deliver4(skb, ip);
	if (config.tunnel4 && ip->daddr == config.tunnel4)
		return unwrap(skb);
	return TC_ACT_UNSPEC;
}

/* At the tunnel's device, on arrival. */
SEC("tc")
int from_tunnel(struct __sk_buff *skb)
{
	struct bpf_tunnel_key key = {};
	struct ethhdr *eth;
	struct iphdr *ip;
	__u32 protocol;

	/* A device that takes metadata takes every network's packets. Without a key it is a packet of the node's own. */
	if (bpf_skb_get_tunnel_key(skb, &key, TUNNEL_KEY_BYTES, 0) &&
	    bpf_skb_get_tunnel_key(skb, &key, TUNNEL_KEY_BYTES, BPF_F_TUNINFO_IPV6))
		return TC_ACT_UNSPEC;
	if (key.tunnel_id != config.vni)
		return drop(DROP_FOREIGN_VNI);
	/* A pod's frame is for the gateway, which to this device is somebody else. */
	bpf_skb_change_type(skb, PACKET_HOST);
	protocol = protocol_of(skb);
	if (protocol == bpf_htons(ETH_P_IPV6))
		return deliver6(skb);
	if (protocol != bpf_htons(ETH_P_IP))
		return pass(PASS_PROTOCOL);
	eth = head(skb, sizeof(*eth) + sizeof(*ip));
	if (!eth)
		return drop(DROP_SHORT);
	ip = (void *)(eth + 1);
	if (!within4(ip->daddr, config.pods4, config.pods4_mask))
		return TC_ACT_UNSPEC;
	return deliver4(skb, ip);
}
