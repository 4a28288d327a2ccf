// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Hands the frames for one address and port to an AF_XDP socket, and leaves all others to the kernel.
 *
 * Neighbours stay the kernel's: it has the address too, and answers who asks for it. So does a packet in fragments, of
 * which only the first names a port. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "afxdp.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct afxdp_lists afxdp_lists = {};

const volatile struct afxdp_wanted afxdp_wanted = {};

/* Bits of the field of fragments: more follow, or this is not the first. */
#define FRAGMENT 0x3fff

/* By the number of the queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} afxdp_sockets SEC(".maps");

/* By the number of the CPU; the loader makes it as long as there are. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} afxdp_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, AFXDP_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} afxdp_counts SEC(".maps");

static __always_inline void count(__u32 counter)
{
	__u64 *value = bpf_map_lookup_elem(&afxdp_counts, &counter);

	if (value)
		*value += 1;
}

/* True if the ports at this place lead to the socket's. Both protocols begin with the two ports. */
static __always_inline int is_port(const __be16 *ports, const void *end)
{
	return (const void *)(ports + 2) <= end && ports[1] == afxdp_wanted.port;
}

static __always_inline int is_wanted_v4(const struct iphdr *ip, const void *end)
{
	const volatile __u8 *wanted = afxdp_wanted.v4;
	const __u8 *address = (const __u8 *)&ip->daddr;

	if ((const void *)(ip + 1) > end || ip->ihl != 5 || ip->protocol != afxdp_wanted.protocol)
		return 0;
	if (ip->frag_off & bpf_htons(FRAGMENT))
		return 0;
	for (int i = 0; i < 4; i++)
		if (address[i] != wanted[i])
			return 0;
	return is_port((const __be16 *)(ip + 1), end);
}

static __always_inline int is_wanted_v6(const struct ipv6hdr *ip, const void *end)
{
	if ((const void *)(ip + 1) > end || ip->nexthdr != afxdp_wanted.protocol)
		return 0;
	for (int i = 0; i < 16; i++)
		if (ip->daddr.in6_u.u6_addr8[i] != afxdp_wanted.v6[i])
			return 0;
	return is_port((const __be16 *)(ip + 1), end);
}

static __always_inline int is_wanted(const struct xdp_md *ctx)
{
	const void *data = (const void *)(long)ctx->data, *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *ethernet = data;

	if ((const void *)(ethernet + 1) > end)
		return 0;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP))
		return is_wanted_v4((const struct iphdr *)(ethernet + 1), end);
	if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		return is_wanted_v6((const struct ipv6hdr *)(ethernet + 1), end);
	return 0;
}

/* Where no socket listens on the queue, the frame is the kernel's, which knows no such port and says so. */
static __always_inline int hand_over(struct xdp_md *ctx)
{
	return bpf_redirect_map(&afxdp_sockets, ctx->rx_queue_index, XDP_PASS);
}

SEC("xdp")
int afxdp_choose(struct xdp_md *ctx)
{
	if (!is_wanted(ctx)) {
		count(AFXDP_LEFT);
		return XDP_PASS;
	}
	count(AFXDP_TAKEN);
	if (afxdp_wanted.has_cpu)
		return bpf_redirect_map(&afxdp_cpus, afxdp_wanted.cpu, XDP_PASS);
	return hand_over(ctx);
}

/* What a frame meets on the CPU that it was sent on to. */
SEC("xdp/cpumap")
int afxdp_on_cpu(struct xdp_md *ctx)
{
	return hand_over(ctx);
}
