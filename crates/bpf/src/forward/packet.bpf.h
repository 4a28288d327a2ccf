// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Reading packets. */
#ifndef HOSTGAP_PACKET_BPF_H
#define HOSTGAP_PACKET_BPF_H

/* Where a TCP header has its own length. */
#define TCP_WORDS 12
/* Of one byte with the version, in the upper half, and the length in units of 4 bytes: IPv4 without options. */
#define IPV4_PLAIN 0x45
/* The bits of a VLAN's tag that are its identifier. */
#define VLAN_ID 0xfff

/* Whether a frame belongs to a VLAN. One with the identifier 0 does not, and has a priority alone (IEEE 802.1Q, section 9.6). */
static __always_inline bool is_in_vlan(const struct __sk_buff *skb)
{
	return skb->vlan_present && (skb->vlan_tci & VLAN_ID);
}

/* The protocol of a frame that arrived by the wire or the tunnel. A link takes a VLAN's tag out of the data and keeps it
 * beside; the frame is for that VLAN's links all the same, and it is sent on with its tag. A priority alone goes along, and the
 * pod's kernel drops it as that of the node would. */
static __always_inline __u32 protocol_of(const struct __sk_buff *skb)
{
	return is_in_vlan(skb) ? bpf_htons(ETH_P_8021Q) : skb->protocol;
}

/* Whether a frame is longer than `frame_max` bytes. A packet that stands for many (GSO) counts as the frames that a link
 * cuts it into. `at` is where the header of its transport protocol begins. */
static __always_inline bool is_too_big(struct __sk_buff *skb, __u32 frame_max, __u32 at, __u8 protocol)
{
	__u8 tcp_words; /* the length of a TCP header in units of 4 bytes, in the upper half (RFC 9293, section 3.1) */

	if (skb->len <= frame_max)
		return false;
	if (!skb->gso_size)
		return true;
	/* In a tunnel that the pod makes itself, the size is of what is inside, without the headers there
	 * (`skb_gso_transport_seglen`). That the whole fits its own link is up to the pod; a narrower way is left to the kernel. */
	if (protocol == IPPROTO_UDP)
		return frame_max < config.frame_max || at + sizeof(struct udphdr) + skb->gso_size > frame_max;
	/* Of other protocols, and behind IPv6 extension headers, nothing is known. */
	if (protocol != IPPROTO_TCP || bpf_skb_load_bytes(skb, at + TCP_WORDS, &tcp_words, sizeof(tcp_words)))
		return true;
	return at + (tcp_words >> 4) * 4 + skb->gso_size > frame_max;
}

/* The checksum of an IPv4 header without options (RFC 1071); over a header that has its own, zero. */
static __always_inline __sum16 ip_checksum(const struct iphdr *ip)
{
	const __u32 *words = (const __u32 *)ip;
	__u64 sum = 0;

#pragma unroll
	for (__u32 at = 0; at < sizeof(*ip) / 4; at++)
		sum += words[at];
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* Whether a pod's frame is for its gateway, which routes it. The words are those that are aligned in both. */
static __always_inline bool is_to_gateway(const struct ethhdr *eth)
{
	const volatile __u8 *gateway = config.gateway_mac;

	return *(__u16 *)eth->h_dest == *(const volatile __u16 *)gateway &&
	       *(__u32 *)(eth->h_dest + 2) == *(const volatile __u32 *)(gateway + 2);
}
_Static_assert(__builtin_offsetof(struct config, gateway_mac) % 4 == 2, "the address's last four bytes are a word");

/* Whether a router has nothing to do with a pod's packet but to send it on (RFC 1812, section 5.2). The kernel has the
 * rest: it drops what is malformed, looks at options, and cuts off bytes behind the packet's end. It also has packets above
 * 64 KiB, which give no length. */
static __always_inline bool is_regular4(const struct __sk_buff *skb, const struct ethhdr *eth, const struct iphdr *ip)
{
	return is_to_gateway(eth) && *(__u8 *)ip == IPV4_PLAIN && ip->ttl > 1 &&
	       bpf_ntohs(ip->tot_len) == skb->len - ETH_HLEN && !ip_checksum(ip);
}

/* The same for IPv6 (RFC 8200, section 3). Every router on the way reads a hop-by-hop header. */
static __always_inline bool is_regular6(const struct __sk_buff *skb, const struct ethhdr *eth, const struct ipv6hdr *ip)
{
	return is_to_gateway(eth) && *(__u8 *)ip >> 4 == 6 && ip->hop_limit > 1 && ip->nexthdr != IPPROTO_HOPOPTS &&
	       bpf_ntohs(ip->payload_len) == skb->len - ETH_HLEN - sizeof(*ip);
}

#endif
