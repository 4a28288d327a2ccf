// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* ARP between a pod and its gateway. */
#ifndef HOSTGAP_ARP_BPF_H
#define HOSTGAP_ARP_BPF_H

static __always_inline void set_gateway_mac(__u8 *mac)
{
#pragma unroll
	for (int at = 0; at < ETH_ALEN; at++)
		mac[at] = config.gateway_mac[at];
}

/* Answers a pod with the gateway's Ethernet address. The kernel answers only for addresses that a link has. */
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

/* What a pod says by ARP. */
static __always_inline int from_pod_arp(struct __sk_buff *skb)
{
	struct ethhdr *eth = head(skb, sizeof(*eth) + sizeof(struct arp));
	enum counter why;
	struct arp *arp;

	if (!eth)
		return drop(DROP_SHORT);
	arp = (void *)(eth + 1);
	why = fault_of_arp(skb, eth, arp);
	if (why != NO_FAULT)
		return drop(why);
	if (arp->operation == bpf_htons(ARP_REQUEST) && arp->target == config.gateway4)
		return answer_for_gateway(skb, arp);
	return pass(PASS_ARP);
}

#endif
