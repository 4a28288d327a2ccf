// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Reading frames and comparing addresses. */
#ifndef HOSTGAP_FRAME_BPF_H
#define HOSTGAP_FRAME_BPF_H

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

/* Extension headers of one IPv6 packet that are looked at. */
#define EXTENSIONS_MAX 8

/* What is behind an IPv6 packet's extension headers. */
enum upper {
	UPPER_FOUND,
	UPPER_NONE, /* nothing: it ends before, or is a fragment other than the first */
	UPPER_FAR,  /* it has more extension headers than anybody needs */
};

/* Finds what is behind the extension headers (RFC 8200, section 4): its protocol, and where it begins. `next` is what
 * follows the IPv6 header. */
static __always_inline enum upper find_upper(struct __sk_buff *skb, __u8 *next, __u32 *at)
{
	__u8 extension[4]; /* next header, length in units of 8 bytes less one; of a fragment the offset */

	*at = ETH_HLEN + sizeof(struct ipv6hdr);
	for (int seen = 0; seen < EXTENSIONS_MAX; seen++) {
		if (*next != IPPROTO_HOPOPTS && *next != IPPROTO_ROUTING && *next != IPPROTO_DSTOPTS &&
		    *next != IPPROTO_FRAGMENT)
			return UPPER_FOUND;
		if (bpf_skb_load_bytes(skb, *at, extension, sizeof(extension)))
			return UPPER_NONE;
		if (*next == IPPROTO_FRAGMENT) {
			if (extension[2] || extension[3] & 0xf8)
				return UPPER_NONE;
			*at += 8;
		} else {
			*at += (extension[1] + 1) * 8;
		}
		*next = extension[0];
	}
	return UPPER_FAR;
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
