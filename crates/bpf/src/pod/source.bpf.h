// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a frame from a pod may say of its sender. The rules are the same whatever becomes of it; a program says of each pod
 * what is its own. */
#ifndef HOSTGAP_SOURCE_BPF_H
#define HOSTGAP_SOURCE_BPF_H

/* Why a frame is dropped; a frame that a rule has nothing against. */
#define NO_FAULT COUNTERS

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

/* Whether the pod at the link by which the frame came has its source Ethernet address. Each program has its own maps. */
static __always_inline bool has_own_mac(struct __sk_buff *skb, const struct ethhdr *eth);

/* Whether the pod at that link has an IPv4 address. */
static __always_inline bool has_address4(struct __sk_buff *skb, __be32 address);

/* Frames that no pod sends, whatever its addresses are. */
static __always_inline enum counter fault_of_kind(const struct __sk_buff *skb, const struct ethhdr *eth)
{
	/* The kernel takes out the tag of VLAN 0, which is none (IEEE 802.1Q, table 9-2), and forwards what is behind it. A
	 * tag stands beside the frame or in it: a netkit pair takes none out. */
	if (skb->vlan_present)
		return DROP_VLAN;
	/* On a netkit pair skb->protocol is what the sender of a packet socket claims, and the kernel goes by it. It could
	 * make the kernel read a VLAN's tag, and another source, in the middle of a header that was found sound here. */
	if (eth->h_proto != skb->protocol)
		return DROP_PROTOCOL;
	return NO_FAULT;
}

/* A frame that is neither IP nor ARP: pods send no others. */
static __always_inline enum counter fault_of_other(struct __sk_buff *skb, const struct ethhdr *eth)
{
	if (eth->h_proto == bpf_htons(ETH_P_8021Q) || eth->h_proto == bpf_htons(ETH_P_8021AD))
		return DROP_VLAN;
	return has_own_mac(skb, eth) ? DROP_PROTOCOL : DROP_SPOOFED_MAC;
}

/* A pod may ask for others and answer for itself; who asks before it uses an address says 0 (RFC 5227). */
static __always_inline enum counter fault_of_arp(struct __sk_buff *skb, const struct ethhdr *eth, const struct arp *arp)
{
	__be32 sender;

	if (!has_own_mac(skb, eth) || !same_mac(arp->sender_mac, eth->h_source))
		return DROP_SPOOFED_MAC;
	sender = arp->sender;
	return sender && !has_address4(skb, sender) ? DROP_SPOOFED_ADDRESS : NO_FAULT;
}

/* Neighbour discovery, and what else IPv6 says between two neighbours, has a link-local address, or none yet: no address
 * that was given to the pod. */
static __always_inline bool is_between_neighbours(const struct in6_addr *from, const struct in6_addr *to)
{
	return is_link_local(from) || (is_unspecified(from) && is_multicast(to));
}

#endif
