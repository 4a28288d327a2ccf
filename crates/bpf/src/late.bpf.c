// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What late answers coincide with: retransmissions, dropped packets, threads that waited for a CPU, long softirq work,
 * and how far an exchange was when.
 *
 * Raw tracepoints alone, because they need neither kprobes nor ftrace. The arguments used of each are there since Linux
 * 5.17 (kfree_skb's reason was the last); what was added behind them later (tcp_retransmit_skb, kfree_skb) is not
 * touched. Where a kernel lacks one of them the others still work: the loader attaches each by itself.
 *
 * Only what takes longer than a limit is reported, so that the ring holds a whole slice and no program has to read
 * meanwhile, which would itself take CPU time from the nodes. */
#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "late.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct late_config late_config = {};
const volatile struct late_lists late_lists = {};

#define AF_INET 2
#define AF_INET6 10
/* include/net/inet_connection_sock.h: which timer is set; and enum tcp_ca_state of linux/tcp.h. */
#define ICSK_TIME_LOSS_PROBE 5
#define TCP_CA_LOSS 4
/* Bytes of an IPv6 header, behind which are the ports if there is no extension header. */
#define IPV6_HEADER 40

/* What is read of the kernel's own structures; where the fields lie is found out when the programs are loaded. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	possible_net_t skc_net;
};

struct sock {
	struct sock_common __sk_common;
};

struct inet_connection_sock {
	__u8 icsk_ca_state : 5;
	__u8 icsk_pending;
};

struct net_device {
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	__u16 network_header;
	unsigned char *head;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	unsigned int __state;
	int pid;
	int tgid;
	struct nsproxy *nsproxy;
};
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, LATE_RING_BYTES);
} late_events SEC(".maps");

/* Events for which the ring had no room. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} late_lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LATE_NAMESPACES);
	__type(key, __u32);
	__type(value, __u32);
} late_namespaces SEC(".maps");

/* Since when threads are ready to run, by their number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LATE_THREADS);
	__type(key, __u32);
	__type(value, __u64);
} late_ready SEC(".maps");

/* By the client's port. An array, because a hash costs more than all the rest. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LATE_PORTS);
	__type(key, __u32);
	__type(value, struct late_exchange);
} late_exchanges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct late_softirq);
} late_softirqs SEC(".maps");

/* The generator's process, as the first PID namespace counts: whoever sends from a client's socket. */
int late_generator = 0;

static __always_inline void report(const struct late_event *event)
{
	__u32 first = 0;
	__u64 *lost;

	if (!bpf_ringbuf_output(&late_events, (void *)event, sizeof(*event), BPF_RB_NO_WAKEUP))
		return;
	lost = bpf_map_lookup_elem(&late_lost, &first);
	if (lost)
		__sync_fetch_and_add(lost, 1);
}

/* 0: it is none of ours. */
static __always_inline __u32 namespace_is(struct net *net)
{
	__u32 inode = BPF_CORE_READ(net, ns.inum);
	__u32 *is = bpf_map_lookup_elem(&late_namespaces, &inode);

	return is ? *is : 0;
}

/* The end of a connection in one of our namespaces. */
struct late_end {
	__u32 port;          /* the client's; 0: it is no such end */
	bool server;         /* it is the server's end */
	__u16 local_port;
	__u16 remote_port;
};

static __always_inline struct late_end end_of(struct sock *sk)
{
	struct late_end end = {};
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (family != AF_INET && family != AF_INET6)
		return end;
	if (!namespace_is(BPF_CORE_READ(sk, __sk_common.skc_net.net)))
		return end;
	end.local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	end.remote_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	end.server = end.local_port == late_config.server_port;
	end.port = end.server ? end.remote_port : end.local_port;
	return end;
}

static __always_inline struct late_exchange *exchange_of(const struct late_end *end)
{
	__u32 port = end->port;

	return port ? bpf_map_lookup_elem(&late_exchanges, &port) : NULL;
}

/* A server's call of the past, or the rest of an answer, comes before the client's next call: what is set stays. */
static __always_inline void set_once(__u64 *instant)
{
	if (!*instant)
		*instant = bpf_ktime_get_ns();
}

SEC("raw_tp/sk_data_ready")
int late_data_ready(struct bpf_raw_tracepoint_args *ctx)
{
	struct late_end end = end_of((struct sock *)ctx->args[0]);
	struct late_exchange *exchange = exchange_of(&end);

	if (exchange)
		set_once(end.server ? &exchange->arrived : &exchange->back);
	return 0;
}

/* The call returns when the packet is on its way, and on a short wire the softirq work of the whole way to the other
 * end may be done in it. So this may be later than the arrival. */
SEC("raw_tp/sock_send_length")
int late_send(struct bpf_raw_tracepoint_args *ctx)
{
	struct late_end end = end_of((struct sock *)ctx->args[0]);
	struct late_exchange *exchange = exchange_of(&end);
	int process;

	if (!exchange || (int)ctx->args[1] <= 0)
		return 0;
	if (end.server) {
		set_once(&exchange->answered);
		return 0;
	}
	exchange->sent = bpf_ktime_get_ns();
	process = bpf_get_current_pid_tgid() >> 32;
	if (late_generator != process)
		late_generator = process;
	return 0;
}

/* The client has the first bytes of the answer: reports the exchange if it took long, and makes room for the next. */
static __always_inline void finish(struct late_exchange *exchange, const struct late_end *end)
{
	__u64 now = bpf_ktime_get_ns(), from = exchange->sent;
	struct late_event event = {
		.until_ns = now, .arrived_ns = exchange->arrived, .read_ns = exchange->read,
		.answered_ns = exchange->answered, .back_ns = exchange->back,
		.kind = LATE_EXCHANGED, .detail = exchange->server_cpu,
		.local_port = end->local_port, .remote_port = end->remote_port,
	};

	if (from && exchange->arrived && exchange->arrived < from)
		from = exchange->arrived;
	event.from_ns = from;
	event.cpu = bpf_get_smp_processor_id();
	*exchange = (struct late_exchange){};
	/* Without a request in it, this is the rest of an answer. */
	if (from && now - from >= late_config.exchange_ns)
		report(&event);
}

SEC("raw_tp/sock_recv_length")
int late_receive(struct bpf_raw_tracepoint_args *ctx)
{
	struct late_end end = end_of((struct sock *)ctx->args[0]);
	struct late_exchange *exchange = exchange_of(&end);

	if (!exchange || (int)ctx->args[1] <= 0)
		return 0;
	if (!end.server) {
		finish(exchange, &end);
		return 0;
	}
	set_once(&exchange->read);
	exchange->server_cpu = bpf_get_smp_processor_id() + 1;
	return 0;
}

/* The timer's handler recognises the probe by the timer that is still set, and has cleared it for a time-out. */
static __always_inline __u32 timer_of(struct sock *sk)
{
	struct inet_connection_sock *icsk = (void *)sk;
	__u8 pending = BPF_CORE_READ(icsk, icsk_pending);

	if (pending == ICSK_TIME_LOSS_PROBE)
		return LATE_PROBE;
	if (!pending && BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state) == TCP_CA_LOSS)
		return LATE_RTO;
	return LATE_FAST;
}

SEC("raw_tp/tcp_retransmit_skb")
int late_retransmit(struct bpf_raw_tracepoint_args *ctx)
{
	struct sock *sk = (struct sock *)ctx->args[0];
	struct late_end end = end_of(sk);
	struct late_event event = { .kind = LATE_RETRANSMITTED };

	if (!end.port)
		return 0;
	event.from_ns = event.until_ns = bpf_ktime_get_ns();
	event.detail = timer_of(sk);
	event.cpu = bpf_get_smp_processor_id();
	event.local_port = end.local_port;
	event.remote_port = end.remote_port;
	report(&event);
	return 0;
}

/* The ports of a TCP segment that is in no tunnel; else they stay 0. */
static __always_inline void read_ports(struct sk_buff *skb, struct late_event *event)
{
	unsigned char *header = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header);
	__u8 first = 0, protocol = 0;
	__u32 length = IPV6_HEADER;
	__be16 ports[2] = {};

	bpf_probe_read_kernel(&first, sizeof(first), header);
	if (first >> 4 == 4)
		length = (first & 0xf) * 4;
	else if (first >> 4 != 6)
		return;
	bpf_probe_read_kernel(&protocol, sizeof(protocol), header + (first >> 4 == 4 ? 9 : 6));
	if (protocol != IPPROTO_TCP)
		return;
	bpf_probe_read_kernel(ports, sizeof(ports), header + length);
	event->local_port = bpf_ntohs(ports[0]);
	event->remote_port = bpf_ntohs(ports[1]);
}

SEC("raw_tp/kfree_skb")
int late_drop(struct bpf_raw_tracepoint_args *ctx)
{
	struct sk_buff *skb = (struct sk_buff *)ctx->args[0];
	struct net_device *dev = BPF_CORE_READ(skb, dev);
	struct late_event event = { .kind = LATE_DROPPED, .detail = ctx->args[2] };
	struct net *net = dev ? BPF_CORE_READ(dev, nd_net.net) : BPF_CORE_READ(skb, sk, __sk_common.skc_net.net);

	if (!namespace_is(net))
		return 0;
	event.from_ns = event.until_ns = bpf_ktime_get_ns();
	event.cpu = bpf_get_smp_processor_id();
	read_ports(skb, &event);
	report(&event);
	return 0;
}

/* Whose thread a task is: a kind of event, or LATE_KINDS if it is of no kind. Those of the generator's threads that send
 * are in a namespace of ours, its others are not. */
static __always_inline __u32 whose(struct task_struct *task)
{
	__u32 is = namespace_is(BPF_CORE_READ(task, nsproxy, net_ns));

	if (!is)
		return LATE_KINDS;
	if (BPF_CORE_READ(task, tgid) == late_generator)
		return LATE_CLIENT_WAITED;
	return is & LATE_SERVER ? LATE_SERVER_WAITED : LATE_KINDS;
}

static __always_inline void is_ready(__u32 pid)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&late_ready, &pid, &now, BPF_ANY);
}

SEC("raw_tp/sched_waking")
int late_waking(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];

	if (whose(task) != LATE_KINDS)
		is_ready(BPF_CORE_READ(task, pid));
	return 0;
}

static __always_inline void begin_to_run(struct task_struct *task, __u32 pid)
{
	__u64 *ready = bpf_map_lookup_elem(&late_ready, &pid);
	struct late_event event = { .detail = pid };

	if (!ready)
		return;
	event.from_ns = *ready;
	event.until_ns = bpf_ktime_get_ns();
	bpf_map_delete_elem(&late_ready, &pid);
	if (event.until_ns - event.from_ns < late_config.wait_ns)
		return;
	event.kind = whose(task);
	event.cpu = bpf_get_smp_processor_id();
	if (event.kind != LATE_KINDS)
		report(&event);
}

SEC("raw_tp/sched_switch")
int late_switch(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *from = (struct task_struct *)ctx->args[1], *to = (struct task_struct *)ctx->args[2];
	int from_pid = BPF_CORE_READ(from, pid), to_pid = BPF_CORE_READ(to, pid);

	/* 0 is the idle task. */
	if (from_pid && whose(from) != LATE_KINDS) {
		/* Whoever still wants to run has lost its CPU to another. Else it waits for something else, and if it
		 * was woken before it even slept, that is over. */
		if (!BPF_CORE_READ(from, __state))
			is_ready(from_pid);
		else
			bpf_map_delete_elem(&late_ready, &from_pid);
	}
	if (to_pid)
		begin_to_run(to, to_pid);
	return 0;
}

static __always_inline struct late_softirq *softirq(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&late_softirqs, &first);
}

SEC("raw_tp/softirq_entry")
int late_softirq_entry(struct bpf_raw_tracepoint_args *ctx)
{
	struct late_softirq *work = softirq();
	__u64 now = bpf_ktime_get_ns();

	(void)ctx;
	if (work && now - work->end > late_config.gap_ns)
		work->begin = now;
	return 0;
}

/* A piece is reported when it is long enough, and what follows at once is the next piece: a storm has no end that one
 * could wait for. */
SEC("raw_tp/softirq_exit")
int late_softirq_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct late_softirq *work = softirq();
	struct late_event event = { .kind = LATE_SOFTIRQ_RAN, .detail = ctx->args[0] };

	if (!work)
		return 0;
	event.from_ns = work->begin;
	event.until_ns = work->end = bpf_ktime_get_ns();
	if (event.until_ns - event.from_ns < late_config.softirq_ns)
		return 0;
	event.cpu = bpf_get_smp_processor_id();
	work->begin = event.until_ns;
	report(&event);
	return 0;
}
