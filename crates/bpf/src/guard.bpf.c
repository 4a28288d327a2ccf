// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a pod sends has its own addresses: the check alone, for links on which the kernel forwards. Whatever passes goes on
 * as if there were no program.
 *
 * A container may have several interfaces in one network, and answers leave by the first of them whichever address was
 * asked. So a frame has the Ethernet address of the interface that it leaves by, and an IP address of any of them. Whose an
 * interface is, is known by its network namespace. */
#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "generation/build.bpf.h"
#include "guard.h"
#include "pod/counters.bpf.h"
#include "pod/frame.bpf.h"
#include "pod/source.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct guard_lists guard_lists = {};

/* Where a neighbour advertisement has the address that it is about (RFC 4861, section 4.4). */
#define ND_TARGET 8

/* The interfaces of pods, by the node's end of their links. Both maps take memory as they fill: most networks have few pods,
 * and a node may have many networks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GUARDED_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct guarded);
} guarded SEC(".maps");

/* All addresses of a container, each with the link of the interface that it belongs to. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GUARDED_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source);
	__type(value, __u32);
} sources SEC(".maps");

/* GUARD_FORMAT, as the maps in this folder have it. No packet is looked up in it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} guard_format SEC(".maps");

static __always_inline const struct guarded *pod_at_link(const struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;

	return bpf_map_lookup_elem(&guarded, &ifindex);
}

static __always_inline bool is_of_container(const struct guarded *pod, const __be32 *address)
{
	struct source source = { .container = pod->container };

	__builtin_memcpy(source.address, address, sizeof(source.address));
	return bpf_map_lookup_elem(&sources, &source);
}

/* Most packets have the address of the interface that they leave by: that takes no second look-up. */
static __always_inline bool is_address4_of(const struct guarded *pod, __be32 address)
{
	const __be32 mapped[4] = { 0, 0, bpf_htonl(0xffff), address };

	return (address && address == pod->v4) || is_of_container(pod, mapped);
}

static __always_inline bool is_address6_of(const struct guarded *pod, const struct in6_addr *address)
{
	const __be32 *words = address->s6_addr32;

	return (!is_unspecified(address) && same_words(words, pod->v6, 4)) || is_of_container(pod, words);
}

static __always_inline bool has_own_mac(struct __sk_buff *skb, const struct ethhdr *eth)
{
	const struct guarded *pod = pod_at_link(skb);

	return pod && same_mac(pod->mac, eth->h_source);
}

static __always_inline bool has_address4(struct __sk_buff *skb, __be32 address)
{
	const struct guarded *pod = pod_at_link(skb);

	return pod && is_address4_of(pod, address);
}

/* Whether a packet speaks for others by neighbour discovery: says where another's address is, or speaks as a router. On a
 * bridge the neighbours would believe it, as they would an ARP reply. */
static __always_inline bool speaks_for_others(struct __sk_buff *skb, const struct guarded *pod, __u8 next)
{
	struct in6_addr target;
	__u8 type;
	__u32 at;

	switch (find_message(skb, next, &type, &at)) {
	case UPPER_NONE:
		return false;
	case UPPER_FAR:
		return true;
	case UPPER_FOUND:
		break;
	}
	if (is_of_routers(type))
		return true;
	if (type != NEIGHBOUR_ADVERTISEMENT || bpf_skb_load_bytes(skb, at + ND_TARGET, &target, sizeof(target)))
		return false;
	return !is_link_local(&target) && !is_address6_of(pod, &target);
}

static __always_inline enum counter fault_of4(struct __sk_buff *skb)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct iphdr));
	const struct guarded *pod = pod_at_link(skb);
	const struct iphdr *ip;

	if (!eth)
		return DROP_SHORT;
	ip = (void *)(eth + 1);
	if (!pod || !is_address4_of(pod, ip->saddr))
		return DROP_SPOOFED_ADDRESS;
	return same_mac(pod->mac, eth->h_source) ? NO_FAULT : DROP_SPOOFED_MAC;
}

static __always_inline enum counter fault_of6(struct __sk_buff *skb)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct ipv6hdr));
	const struct guarded *pod = pod_at_link(skb);
	const struct ipv6hdr *ip;

	if (!eth)
		return DROP_SHORT;
	ip = (void *)(eth + 1);
	if (!pod || !(is_between_neighbours(&ip->saddr, &ip->daddr) || is_address6_of(pod, &ip->saddr)))
		return DROP_SPOOFED_ADDRESS;
	if (!same_mac(pod->mac, eth->h_source))
		return DROP_SPOOFED_MAC;
	return speaks_for_others(skb, pod, ip->nexthdr) ? DROP_SPOOFED_ADDRESS : NO_FAULT;
}

static __always_inline enum counter fault_of_any_arp(struct __sk_buff *skb)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct arp));

	return eth ? fault_of_arp(skb, eth, (void *)(eth + 1)) : DROP_SHORT;
}

static __always_inline enum counter fault_of(struct __sk_buff *skb)
{
	struct ethhdr *eth = head(skb, sizeof(*eth));
	enum counter why;

	if (!eth)
		return DROP_SHORT;
	why = fault_of_kind(skb, eth);
	if (why != NO_FAULT)
		return why;
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		return fault_of4(skb);
	case bpf_htons(ETH_P_IPV6):
		return fault_of6(skb);
	case bpf_htons(ETH_P_ARP):
		return fault_of_any_arp(skb);
	}
	return fault_of_other(skb, eth);
}

/* At the node's end of a pod's veth pair, on arrival. What it lets through is not counted: that is in the link's own
 * statistics. */
SEC("tc")
int guard(struct __sk_buff *skb)
{
	enum counter why = fault_of(skb);

	return why == NO_FAULT ? TC_ACT_UNSPEC : drop(why);
}
