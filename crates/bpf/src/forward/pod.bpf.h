// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The pods of this node. */
#ifndef HOSTGAP_POD_BPF_H
#define HOSTGAP_POD_BPF_H

/* The pod that has the slot of an address and this address, or NULL. */
static __always_inline const struct endpoint *pod_in_slot4(__be32 address)
{
	__u32 at = bpf_ntohl(address) % SLOTS;
	struct slot4 *slot = bpf_map_lookup_elem(&slots4, &at);

	return slot && slot->address == address && slot->pod.ifindex ? &slot->pod : NULL;
}

static __always_inline const struct endpoint *pod_in_slot6(const struct in6_addr *address)
{
	__u32 at = bpf_ntohl(address->s6_addr32[3]) % SLOTS;
	struct slot6 *slot = bpf_map_lookup_elem(&slots6, &at);

	return slot && same_words(slot->address, address->s6_addr32, 4) && slot->pod.ifindex ? &slot->pod : NULL;
}

/* The pod of an address, or NULL. */
static __always_inline const struct endpoint *pod_at4(__be32 address)
{
	const struct endpoint *pod = pod_in_slot4(address);

	return pod ? pod : bpf_map_lookup_elem(&endpoints4, &address);
}

static __always_inline const struct endpoint *pod_at6(const struct in6_addr *address)
{
	const struct endpoint *pod = pod_in_slot6(address);

	return pod ? pod : bpf_map_lookup_elem(&endpoints6, address);
}

static __always_inline bool has_own_mac(struct __sk_buff *skb, const struct ethhdr *eth)
{
	__u32 ifindex = skb->ifindex;
	struct endpoint *own = bpf_map_lookup_elem(&links, &ifindex);

	return own && same_mac(own->mac, eth->h_source);
}

static __always_inline bool has_address4(struct __sk_buff *skb, __be32 address)
{
	const struct endpoint *own = pod_at4(address);

	return own && own->ifindex == skb->ifindex;
}

/* Whether a packet comes from the pod whose address it has; counts it otherwise. */
static __always_inline bool is_own(struct __sk_buff *skb, const struct ethhdr *eth, const struct endpoint *pod)
{
	if (!pod || pod->ifindex != skb->ifindex) {
		count(DROP_SPOOFED_ADDRESS);
		return false;
	}
	if (!same_mac(pod->mac, eth->h_source)) {
		count(DROP_SPOOFED_MAC);
		return false;
	}
	return true;
}

/* To a pod of this node by its link, and the queue that the link has. The pod takes what has its Ethernet address. */
static __always_inline int send_to_pod(struct __sk_buff *skb, const struct endpoint *pod)
{
	if (bpf_skb_store_bytes(skb, 0, pod->mac, sizeof(pod->mac), 0))
		return drop(DROP_REWRITE);
	return bpf_redirect(pod->ifindex, 0);
}

/* To a pod of this node, for what has just arrived: it changes over to the pod, past the backlog, and past the queue if
 * none is to hold it. */
static __always_inline int hand_to_pod(struct __sk_buff *skb, const struct endpoint *pod)
{
	if (pod->queued)
		return send_to_pod(skb, pod);
	return bpf_redirect_peer(pod->ifindex, 0);
}

#endif
