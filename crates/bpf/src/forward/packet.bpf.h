// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Reading packets. */
#ifndef HOSTGAP_PACKET_BPF_H
#define HOSTGAP_PACKET_BPF_H

#define AF_INET 2
#define AF_INET6 10

/* The first bytes of a frame, or NULL if there are fewer. A driver may leave headers outside of what can be read
 * directly; they are then brought in, and whatever was read before must be read again. */
static __always_inline void *head(struct __sk_buff *skb, __u32 bytes)
{
	void *data = (void *)(long)skb->data;

	/* The verifier knows of one value that it was checked; a compiler that finds it twice mixes the two up. */
	barrier_var(data);
	if (data + bytes <= (void *)(long)skb->data_end)
		return data;
	if (skb->len < bytes || bpf_skb_pull_data(skb, bytes))
		return NULL;
	data = (void *)(long)skb->data;
	barrier_var(data);
	return data + bytes <= (void *)(long)skb->data_end ? data : NULL;
}

/* The protocol of a frame. A link takes a VLAN's tag out of the data and keeps it beside; the frame is for that VLAN's
 * links all the same, and whoever sends it on sends it with its tag. */
static __always_inline __u32 protocol_of(const struct __sk_buff *skb)
{
	return skb->vlan_present ? bpf_htons(ETH_P_8021Q) : skb->protocol;
}

static __always_inline bool same_mac(const __u8 *one, const __u8 *two)
{
	return *(__u32 *)one == *(__u32 *)two && *(__u16 *)(one + 4) == *(__u16 *)(two + 4);
}

/* `count` is a constant. */
static __always_inline bool same_words(const __u32 *one, const __u32 *two, int count)
{
	__u32 differences = 0;

#pragma unroll
	for (int word = 0; word < count; word++)
		differences |= one[word] ^ two[word];
	return !differences;
}

static __always_inline bool within4(__be32 address, __be32 net, __be32 mask)
{
	return (address & mask) == net;
}

static __always_inline bool within6(const struct in6_addr *address, const volatile __u32 *net,
				    const volatile __u32 *mask)
{
	bool same = true;

#pragma unroll
	for (int word = 0; word < 4; word++)
		same &= (address->s6_addr32[word] & mask[word]) == net[word];
	return same;
}

static __always_inline bool is_link_local(const struct in6_addr *address)
{
	return (address->s6_addr32[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

static __always_inline bool is_multicast(const struct in6_addr *address)
{
	return address->s6_addr[0] == 0xff;
}

static __always_inline bool is_unspecified(const struct in6_addr *address)
{
	const __be32 *words = address->s6_addr32;

	return !(words[0] | words[1] | words[2] | words[3]);
}

#endif
