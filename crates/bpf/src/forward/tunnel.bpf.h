// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* VXLAN (RFC 7348). All of it can go through the tunnel's device; a lone IPv4 packet over IPv4 is wrapped and unwrapped
 * here, without the device's look-up of a route and a neighbour for each packet and its queue on the way in. */
#ifndef HOSTGAP_TUNNEL_BPF_H
#define HOSTGAP_TUNNEL_BPF_H

#define VXLAN_VALID_VNI 0x08000000
#define IP_DONT_FRAGMENT 0x4000
#define IP_OFFSET 0x1fff
/* The two bits of explicit congestion notification, and the value that says "congestion experienced" (RFC 3168). */
#define ECN_MASK 3
#define ECN_CE 3

/* A tunnel's key without the near end's address, which Linux 5.19 added: the kernels before it refuse a longer one. */
#define TUNNEL_KEY_BYTES offsetof(struct bpf_tunnel_key, local_ipv4)

struct vxlanhdr {
	__be32 flags;
	__be32 vni; /* in the upper 24 bits */
};

/* What a tunnel's packet has between the Ethernet header on the wire and the pod's IP header. */
struct wrapping {
	struct iphdr ip;
	struct udphdr udp;
	struct vxlanhdr vxlan;
	struct ethhdr inner;
};
#define WRAPPING_BYTES (offsetof(struct wrapping, inner) + sizeof(struct ethhdr))
/* The same over IPv6. */
#define WRAPPING6_BYTES (WRAPPING_BYTES - sizeof(struct iphdr) + sizeof(struct ipv6hdr))

/* The same with the frame's own header, for the stack, where IP must stand at a multiple of four. */
struct wrapped_head {
	__u16 unused;
	struct ethhdr eth;
	struct wrapping behind;
};

/* Whether a datagram goes to the tunnel's port. Left to the kernel it could reach a node's own tunnel device, which would
 * take what a pod wrote for another node's packet: nodes alone send there. `at` is where UDP begins. */
static __always_inline bool is_to_tunnel(struct __sk_buff *skb, __u32 at, __u8 protocol)
{
	__be16 port;

	return protocol == IPPROTO_UDP &&
	       !bpf_skb_load_bytes(skb, at + offsetof(struct udphdr, dest), &port, sizeof(port)) &&
	       port == config.tunnel_port;
}

/* The same of an IPv4 packet. Of one in fragments the first has the port, and without it the others come to nothing. */
static __always_inline bool is_to_tunnel4(struct __sk_buff *skb, const struct iphdr *ip)
{
	if (!config.tunnel_port || ip->frag_off & bpf_htons(IP_OFFSET))
		return false;
	return is_to_tunnel(skb, ETH_HLEN + ip->ihl * 4, ip->protocol);
}

/* The same of an IPv6 packet, behind its extension headers. With more of them than anybody needs it counts as one. */
static __always_inline bool is_to_tunnel6(struct __sk_buff *skb, __u8 next)
{
	__u32 at;

	if (!config.tunnel_port)
		return false;
	switch (find_upper(skb, &next, &at)) {
	case UPPER_FOUND:
		return is_to_tunnel(skb, at, next);
	case UPPER_NONE:
		return false;
	case UPPER_FAR:
		break;
	}
	return true;
}

/* Whether an address is another node's end of the tunnel. */
static __always_inline bool is_peer(const struct in6_addr *address)
{
	return bpf_map_lookup_elem(&peers, address);
}

static __always_inline bool is_peer4(__be32 address)
{
	const struct in6_addr mapped = { .s6_addr32 = { 0, 0, bpf_htonl(0xffff), address } };

	return is_peer(&mapped);
}

/* Hands a packet to the tunnel's device. */
static __always_inline int through_device(struct __sk_buff *skb, const struct route *route)
{
	struct bpf_tunnel_key key = { .tunnel_id = config.vni, .tunnel_ttl = IPDEFTTL };
	__u64 flags = BPF_F_ZERO_CSUM_TX;

	if (route->tunnel.family == AF_INET6) {
		flags = BPF_F_TUNINFO_IPV6;
		__builtin_memcpy(key.remote_ipv6, route->tunnel.remote, sizeof(key.remote_ipv6));
	} else {
		/* This helper wants the host's order. */
		key.remote_ipv4 = bpf_ntohl(route->tunnel.remote[0]);
	}
	if (bpf_skb_set_tunnel_key(skb, &key, TUNNEL_KEY_BYTES, flags))
		return drop(DROP_REWRITE);
	return bpf_redirect(route->tunnel.ifindex, 0);
}

/* Wraps a lone IPv4 packet and puts it on the wire. */
static __always_inline int wrap(struct __sk_buff *skb, const struct route *route, __u8 tos)
{
	const __u64 how = BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_ENCAP_L2_ETH |
			  BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN) | BPF_F_ADJ_ROOM_FIXED_GSO |
			  BPF_F_ADJ_ROOM_NO_CSUM_RESET;
	__u16 bytes = skb->len - ETH_HLEN + WRAPPING_BYTES;
	struct wrapped_head wrapped = {};
	struct wrapping *outer = &wrapped.behind;
	struct ethhdr *eth = head(skb, sizeof(*eth));

	if (!eth)
		return drop(DROP_SHORT);
	__builtin_memcpy(&outer->inner, eth, sizeof(*eth));
	__builtin_memcpy(&wrapped.eth, route->macs, sizeof(route->macs));
	wrapped.eth.h_proto = bpf_htons(ETH_P_IP);
	outer->ip.version = 4;
	outer->ip.ihl = 5;
	/* Congestion marks are copied (RFC 6040, section 4.1). */
	outer->ip.tos = tos & ECN_MASK;
	outer->ip.tot_len = bpf_htons(bytes);
	/* What is never cut needs no identification (RFC 6864, section 4.1). */
	outer->ip.frag_off = bpf_htons(IP_DONT_FRAGMENT);
	outer->ip.ttl = IPDEFTTL;
	outer->ip.protocol = IPPROTO_UDP;
	outer->ip.saddr = config.tunnel4;
	outer->ip.daddr = route->tunnel.remote[0];
	outer->ip.check = ip_checksum(&outer->ip);
	/* The port follows from the flow, so that the underlay can spread flows (RFC 7348, section 5). */
	outer->udp.source = bpf_htons(49152 | (bpf_get_hash_recalc(skb) & 0x3fff));
	outer->udp.dest = config.tunnel_port;
	outer->udp.len = bpf_htons(bytes - sizeof(struct iphdr));
	outer->vxlan.flags = bpf_htonl(VXLAN_VALID_VNI);
	outer->vxlan.vni = bpf_htonl(config.vni << 8);
	if (bpf_skb_adjust_room(skb, WRAPPING_BYTES, BPF_ADJ_ROOM_MAC, how))
		return through_device(skb, route);
	if (bpf_skb_store_bytes(skb, 0, &wrapped.eth, ETH_HLEN + WRAPPING_BYTES, 0))
		return drop(DROP_REWRITE);
	return bpf_redirect(route->wire, 0);
}

/* Unwraps a lone packet for a pod of this node and gives it to the pod; all other packets are the kernel's, which has
 * the device for those of the tunnel. The outer IPv4 header has been read. */
static __always_inline int unwrap(struct __sk_buff *skb)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + WRAPPING_BYTES + sizeof(struct iphdr));
	struct wrapping *outer;
	const struct endpoint *pod;
	struct iphdr *ip;
	struct way4 back;
	bool is_answer;

	if (!eth || skb->gso_size)
		return TC_ACT_UNSPEC;
	outer = (void *)(eth + 1);
	if (outer->ip.ihl != 5 || outer->ip.protocol != IPPROTO_UDP || outer->udp.dest != config.tunnel_port ||
	    outer->ip.frag_off & bpf_htons((__u16)~IP_DONT_FRAGMENT))
		return TC_ACT_UNSPEC;
	/* The device copies congestion marks to the inner packet (RFC 6040, section 4.2), and counts what is malformed. */
	if ((outer->ip.tos & ECN_MASK) == ECN_CE || outer->vxlan.flags != bpf_htonl(VXLAN_VALID_VNI) ||
	    outer->vxlan.vni != bpf_htonl(config.vni << 8) || outer->inner.h_proto != bpf_htons(ETH_P_IP))
		return TC_ACT_UNSPEC;
	ip = (void *)eth + sizeof(*eth) + WRAPPING_BYTES;
	back.from = ip->daddr;
	back.to = ip->saddr;
	/* Most packets answer, and come from where this node sends to: routes are kept to other nodes' pods alone. */
	is_answer = leads_to4(&back, outer->ip.saddr);
	if (!is_answer && !is_peer4(outer->ip.saddr))
		return drop(DROP_TUNNEL_PEER);
	pod = pod_at4(back.from);
	if (!pod || (!is_answer && home_of4(back.to) != HOME_THERE))
		return TC_ACT_UNSPEC;
	/* What the hardware says of checksums is of the outer packet: the pod's kernel checks for itself. */
	if (bpf_skb_adjust_room(skb, -(__s32)WRAPPING_BYTES, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return drop(DROP_REWRITE);
	return hand_to_pod(skb, pod);
}

#endif
