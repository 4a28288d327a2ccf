// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What it costs to see and judge a packet: a generator of frames, and verdicts that do nothing else.
 *
 * Each program counts one thing, so that all pay the same for it, and so that a measurement can show that every frame met
 * its verdict. The generator runs as a live test run (Linux 5.18); the frames' verdict then runs on the same CPU. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "packets.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct packets_lists packets_lists = {};

/* Where other frames pass too: the port of UDP over IPv4 to which those go that are judged. 0: all frames are
 * judged, and none is left for a socket. */
const volatile __u16 only_port = 0;

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, PACKETS_LINKS);
	__type(key, __u32);
	__type(value, __u32);
} packets_links SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PACKETS_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} packets_counts SEC(".maps");

static __always_inline void count(__u32 counter)
{
	__u64 *value = bpf_map_lookup_elem(&packets_counts, &counter);

	if (value)
		*value += 1;
}

/* True for frames that are to be judged. All others are the kernel's. */
static __always_inline int is_judged(const void *data, const void *end)
{
	const struct {
		struct ethhdr ethernet;
		struct iphdr ip;
		struct udphdr udp;
	} __attribute__((packed)) *frame = data;

	if (!only_port)
		return 1;
	return (const void *)(frame + 1) <= end && frame->ethernet.h_proto == bpf_htons(ETH_P_IP) && frame->ip.ihl == 5 &&
	       frame->ip.protocol == IPPROTO_UDP && frame->udp.dest == bpf_htons(only_port);
}

#define IS_JUDGED(ctx) is_judged((void *)(long)(ctx)->data, (void *)(long)(ctx)->data_end)

/* Sends each frame over the wire. */
SEC("xdp")
int generate(struct xdp_md *ctx __attribute__((unused)))
{
	count(PACKETS_GENERATED);
	return bpf_redirect_map(&packets_links, PACKETS_WIRE, XDP_ABORTED);
}

/* Makes frames and sends none: what the generator itself costs. */
SEC("xdp")
int generate_alone(struct xdp_md *ctx __attribute__((unused)))
{
	count(PACKETS_GENERATED);
	return XDP_DROP;
}

SEC("xdp")
int xdp_drop(struct xdp_md *ctx)
{
	if (!IS_JUDGED(ctx))
		return XDP_PASS;
	count(PACKETS_JUDGED);
	return XDP_DROP;
}

SEC("xdp")
int xdp_pass(struct xdp_md *ctx __attribute__((unused)))
{
	count(PACKETS_JUDGED);
	return XDP_PASS;
}

SEC("xdp")
int xdp_tx(struct xdp_md *ctx __attribute__((unused)))
{
	count(PACKETS_JUDGED);
	return XDP_TX;
}

SEC("xdp")
int xdp_redirect(struct xdp_md *ctx __attribute__((unused)))
{
	count(PACKETS_JUDGED);
	return bpf_redirect_map(&packets_links, PACKETS_ONWARD, XDP_ABORTED);
}

/* Where frames end that were sent back or onward. */
SEC("xdp")
int sink(struct xdp_md *ctx __attribute__((unused)))
{
	count(PACKETS_SUNK);
	return XDP_DROP;
}

SEC("tc")
int tc_drop(struct __sk_buff *skb)
{
	if (!IS_JUDGED(skb))
		return TC_ACT_UNSPEC;
	count(PACKETS_JUDGED);
	return TC_ACT_SHOT;
}
