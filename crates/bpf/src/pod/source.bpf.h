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

/* Messages of neighbour discovery (RFC 4861, section 4). */
#define ROUTER_ADVERTISEMENT 134
#define NEIGHBOUR_ADVERTISEMENT 136
#define REDIRECT 137

/* Finds the ICMPv6 message that a packet is, behind its extension headers: its type, and where it begins. UPPER_NONE also if
 * it is none. `next` is what follows the IPv6 header. */
static __always_inline enum upper find_message(struct __sk_buff *skb, __u8 next, __u8 *type, __u32 *at)
{
	enum upper upper = find_upper(skb, &next, at);

	if (upper == UPPER_FOUND && (next != IPPROTO_ICMPV6 || bpf_skb_load_bytes(skb, *at, type, sizeof(*type))))
		return UPPER_NONE;
	return upper;
}

/* Whether routers alone send messages of a type. A neighbour that believes one gets a default route, an address or another
 * way from it: the node does where it does not forward (`ipv6_accept_ra`). */
static __always_inline bool is_of_routers(__u8 type)
{
	return type == ROUTER_ADVERTISEMENT || type == REDIRECT;
}

/* Whether a packet speaks as a router. With more extension headers than anybody needs it counts as one that does. */
static __always_inline bool speaks_as_router(struct __sk_buff *skb, __u8 next)
{
	__u8 type;
	__u32 at;

	switch (find_message(skb, next, &type, &at)) {
	case UPPER_FOUND:
		return is_of_routers(type);
	case UPPER_NONE:
		return false;
	case UPPER_FAR:
		break;
	}
	return true;
}

#endif
